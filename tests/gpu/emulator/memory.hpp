#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace emulated {

enum class MemoryKind { device, pinned };

struct Allocation {
    char* data = nullptr;
    std::size_t bytes = 0;
    MemoryKind kind = MemoryKind::device;
    int device = 0;
    bool freed = false;  ///< by the program; its stream may not have come to it yet
};

/// Room on a device, or page-locked on the host, between two red zones. Its contents are
/// whatever was there. Waits for memory that is being freed; null where there is not
/// enough.
void* allocate(MemoryKind kind, int device, std::size_t bytes);

/// What lives and holds this address; nothing where it is memory of the program's own.
std::optional<Allocation> find_memory(const void* address);

/// Takes an allocation from the program: it is not found any more. False where none
/// begins there.
bool begin_free(void* pointer, MemoryKind kind);
/// Looks at its red zones, and makes it NaN and free. What writes to it later, or wrote
/// outside it, ends the process.
void finish_free(void* pointer);

/// All bits set, which is NaN in f32 and f64, and -1.
void make_nan(void* pointer, std::size_t bytes);

std::size_t bytes_in_use(int device);

/// Ends the process unless these bytes are within one allocation of device or page-locked
/// memory; `what` names them.
void require_reachable(const void* pointer, std::size_t bytes, const std::string& what);

}  // namespace emulated
