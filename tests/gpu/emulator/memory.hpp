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
    bool freed = false;  ///< by the program; its stream may not have come to it yet
};

/// Room on a device, or page-locked on the host, between two red zones. Its contents are
/// whatever was there. Waits for memory that is being freed; null where there is not
/// enough.
void* allocate(MemoryKind kind, int device, std::size_t bytes);

/// What lives and holds this address; nothing where it is memory of the program's own.
std::optional<Allocation> find_memory(const void* address);

/// Memory of the stream's device for what comes into the stream, which was freed before
/// and is as large: with some luck, if there is some that CUDA might give. That is what
/// was freed at a point which is reached, or which the stream comes behind. Null
/// otherwise.
void* allocate_again(const Stream& stream, std::size_t bytes);

/// Takes an allocation from the program: it is not found any more. Returns its lifetime;
/// 0 where none begins there.
std::uint64_t begin_free(void* pointer, MemoryKind kind);
/// It is freed at that point of a stream; allocate_again may give it from now on.
void offer_again(void* pointer, std::uint64_t lifetime, std::shared_ptr<Point> point);
/// Looks at its red zones and makes it NaN; free, unless it has been given again. What
/// writes to it later, or wrote outside it, ends the process.
void finish_free(void* pointer, std::uint64_t lifetime);

/// All bits set, which is NaN in f32 and f64, and -1.
void make_nan(void* pointer, std::size_t bytes);

std::size_t bytes_in_use(int device);

/// Ends the process unless these bytes are within one allocation of device or page-locked
/// memory; `what` names them.
void require_reachable(const void* pointer, std::size_t bytes, const std::string& what);

}  // namespace emulated
