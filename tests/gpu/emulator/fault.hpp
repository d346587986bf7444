#pragma once

#include <functional>
#include <memory>

#include "tests/gpu/emulator/include/emulated_types.h"

namespace emulated {

class Stream;

/// Returns whether a kernel of this process has touched memory on the device that is not
/// its own. From then on the device does nothing for the process.
bool is_faulted(int device);

/// Returns what a call says that needs the device, or has waited for it: its fault, or
/// cudaSuccess.
cudaError_t fault_of(int device);

/// Puts in what only a device without a fault does.
void put_work(const std::shared_ptr<Stream>& stream, std::function<void()> operation);

/// Puts in work that is a kernel on a GPU. If it is the one that
/// EMULATED_FAULT_AT_LAUNCH names, the device faults when its turn comes.
void put_launch(const std::shared_ptr<Stream>& stream, std::function<void()> operation);

}  // namespace emulated
