#include "tests/gpu/emulator/fault.hpp"

#include <atomic>
#include <cstdint>

#include "tests/gpu/emulator/handles.hpp"
#include "tests/gpu/emulator/settings.hpp"
#include "tests/gpu/emulator/stream.hpp"

namespace emulated {

namespace {

/// The state of the one device that can fault.
struct Fault {
    std::atomic<std::int64_t> launches = 0;
    std::atomic<bool> has_come = false;
};

bool can_fault(int device) {
    return settings().fault_at_launch > 0 && device == settings().fault_gpu;
}

}  // namespace

bool is_faulted(int device) {
    return can_fault(device) && immortal<Fault>().has_come;
}

cudaError_t fault_of(int device) {
    return is_faulted(device) ? cudaErrorIllegalAddress : cudaSuccess;
}

void put_work(const std::shared_ptr<Stream>& stream, std::function<void()> operation) {
    put(stream, [device = stream->device(), operation = std::move(operation)] {
        if (!is_faulted(device)) operation();
    });
}

void put_launch(const std::shared_ptr<Stream>& stream, std::function<void()> operation) {
    if (can_fault(stream->device()) &&
        ++immortal<Fault>().launches == settings().fault_at_launch)
        return put(stream, [] { immortal<Fault>().has_come = true; });
    put_work(stream, std::move(operation));
}

}  // namespace emulated
