#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace emulated {

class Point;
class Stream;

enum class MemoryKind { device, pinned };

struct Allocation {
    char* data = nullptr;
    std::size_t bytes = 0;
    MemoryKind kind = MemoryKind::device;
    int device = 0;
    std::uint64_t lifetime = 0;  ///< no two allocations have the same
    bool freed = false;          ///< by the program; perhaps not yet by its stream
};

/// Allocates memory on a device, or page-locked memory on the host, between two red
/// zones. Its contents are what was there before. Waits for memory that is being freed;
/// returns null if there is not enough.
void* allocate(MemoryKind kind, int device, std::size_t bytes);

/// Returns the live allocation that contains this address; nothing if it is the program's
/// own memory.
std::optional<Allocation> find_memory(const void* address);

/// Returns freed memory of the same size on the stream's device, for the stream's next
/// operations: at random, if CUDA might give some. CUDA may give memory whose free is at
/// a point that is reached already, or that the stream waits for. Returns null otherwise.
void* allocate_again(const Stream& stream, std::size_t bytes);

/// Takes an allocation from the program: it is not found any more. Returns its lifetime;
/// 0 if no allocation begins there.
std::uint64_t begin_free(void* pointer, MemoryKind kind);
/// Frees it at this point of a stream; from now on allocate_again may give it.
void offer_again(void* pointer, std::uint64_t lifetime, std::shared_ptr<Point> point);
/// Checks its red zones and makes it NaN, and frees it unless it was given again. Ends
/// the process if something wrote outside it, or writes to it later.
void finish_free(void* pointer, std::uint64_t lifetime);

/// Sets all bits, which is NaN in f32 and f64, and -1.
void make_nan(void* pointer, std::size_t bytes);

std::size_t bytes_in_use(int device);

/// Ends the process unless these bytes are in one allocation of device or page-locked
/// memory; `what` names them in the message.
void require_reachable(const void* pointer, std::size_t bytes, const std::string& what);

}  // namespace emulated
