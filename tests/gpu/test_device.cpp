#include "gpu/device.hpp"
#include "tests/device/support.hpp"

namespace lockstep::test {

const char* const kTags = "[gpu][device]";

std::unique_ptr<Device> make_device(int index, DeviceMonitor& monitor) {
    return std::make_unique<gpu::Device>(index, monitor);
}

}  // namespace lockstep::test

#include "tests/device/device_contract.hpp"
