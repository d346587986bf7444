#pragma once

#include <functional>
#include <memory>

#include "tests/gpu/emulator/include/emulated_types.h"

namespace emulated {

class Stream;

/// Returns whether a kernel of this process has touched memory on the device that is not
/// its own. After that the device does nothing for the process.
bool is_faulted(int device);

/// Returns the result of a call that needs the device, or has waited for it: its fault,
/// or cudaSuccess.
cudaError_t fault_of(int device);

/// Puts in an operation that runs only on a device without a fault.
void put_work(const std::shared_ptr<Stream>& stream, std::function<void()> operation);

/// Puts in an operation that is a kernel on a GPU. If EMULATED_FAULT_AT_LAUNCH names it,
/// the device faults when the operation's turn comes.
void put_launch(const std::shared_ptr<Stream>& stream, std::function<void()> operation);

}  // namespace emulated
