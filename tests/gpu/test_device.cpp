#include "gpu/device.hpp"
#include "tests/device/support.hpp"

namespace lockstep::test {

const char* const kTags = "[gpu][device]";

std::unique_ptr<Device> make_device(int index, DeviceMonitor& monitor) {
    return std::make_unique<gpu::Device>(index, monitor);
}

// cuBLAS chooses the order. For bf16 it uses tensor cores.
const bool kProductsOfBf16InOrder = false;

}  // namespace lockstep::test

#include "tests/device/device_contract.hpp"
