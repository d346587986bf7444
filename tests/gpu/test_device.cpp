#include "gpu/device.hpp"
#include "tests/device/support.hpp"

namespace lockstep::test {

const char* const kTags = "[gpu][device]";

std::unique_ptr<Device> make_device(int index, DeviceMonitor& monitor) {
    return std::make_unique<gpu::Device>(index, monitor);
}

// cuBLAS chooses the order, and uses tensor cores for bf16.
const bool kProductsOfBf16InOrder = false;

}  // namespace lockstep::test

#include "tests/device/device_contract.hpp"
