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
    std::uint64_t lifetime = 0;  ///< different for every allocation
    bool freed = false;          ///< by the program, perhaps not yet by its stream
};

/// Allocates memory on a device, or page-locked memory on the host, between two red
/// zones. The old contents stay. Waits for memory that is being freed. Returns null if
/// there is not enough memory.
void* allocate(MemoryKind kind, int device, std::size_t bytes);

/// Returns the live allocation that contains this address; nothing if the address is in
/// the program's own memory.
std::optional<Allocation> find_memory(const void* address);

/// Returns freed memory of the same size on the stream's device, for the stream's next
/// operations; or null. CUDA might reuse such memory if the point of the free has been
/// reached, or if the stream waits for that point. Then the choice is random.
void* allocate_again(const Stream& stream, std::size_t bytes);

/// Begins to free an allocation: find_memory no longer finds it. Returns its lifetime, or
/// 0 if no allocation begins at `pointer`.
std::uint64_t begin_free(void* pointer, MemoryKind kind);
/// Frees the memory at this point of a stream. From now on allocate_again may return it.
void offer_again(void* pointer, std::uint64_t lifetime, std::shared_ptr<Point> point);
/// Checks the red zones, makes the memory NaN, and frees it unless it was given again.
/// Ends the process if something wrote outside the memory, or writes to it later.
void finish_free(void* pointer, std::uint64_t lifetime);

/// Sets all bits. This is NaN in f32 and f64, and -1 in integers.
void make_nan(void* pointer, std::size_t bytes);

std::size_t bytes_in_use(int device);

/// Ends the process unless these bytes are in one allocation of device or page-locked
/// memory; `what` names them in the message.
void require_reachable(const void* pointer, std::size_t bytes, const std::string& what);

}  // namespace emulated
