#include "sim/device.hpp"
#include "tests/device/support.hpp"

namespace lockstep::test {

const char* const kTags = "[sim][device]";

std::unique_ptr<Device> make_device(int index, DeviceMonitor& monitor) {
    return std::make_unique<sim::CpuDevice>(index, monitor);
}

// Products of bf16 are products of f32 copies.
const bool kProductsOfBf16InOrder = true;

}  // namespace lockstep::test

#include "tests/device/device_contract.hpp"
