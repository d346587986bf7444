#pragma once

#include <functional>
#include <memory>

#include "tests/gpu/emulator/include/emulated_types.h"

namespace emulated {

class Stream;

/// Returns whether a kernel of this process has touched, on this device, memory that is
/// not its own. After that the device does nothing for this process.
bool is_faulted(int device);

/// Returns the result of a call that needs the device or has waited for the device: the
/// device's fault, or cudaSuccess.
cudaError_t fault_of(int device);

/// Puts an operation into the stream. It runs only if the device has no fault.
void put_work(const std::shared_ptr<Stream>& stream, std::function<void()> operation);

/// Puts a kernel of a GPU into the stream. If EMULATED_FAULT_AT_LAUNCH is the
/// kernel's number, the device faults when the kernel's turn comes.
void put_launch(const std::shared_ptr<Stream>& stream, std::function<void()> operation);

}  // namespace emulated
