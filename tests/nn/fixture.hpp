// For the tests of layers: a device without a cluster, and host tensors as inputs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/device.hpp"
#include "src/core/philox.hpp"
#include "src/core/require.hpp"
#include "src/nn/module.hpp"
#include "src/trial/difference.hpp"
#include "src/trial/values.hpp"
#include "tests/catch.hpp"
#include "tests/device/plain_monitor.hpp"
#include "tests/refusal.hpp"

namespace lockstep::nn_test {

/// One device that computes, without a cluster.
struct OneDevice {
    explicit OneDevice(bool numbers = true) : monitor(numbers) {}

    test::PlainMonitor monitor;
    sim::CpuDevice device{0, monitor};

    /// How the tests make a module: in f64 and from seed 7.
    ParameterInit init(const std::string& name = "", DType dtype = DType::f64) {
        return {device, dtype, 7, name};
    }

    /// Returns how many operations of this name the monitor has seen.
    std::int64_t count(const std::string& operation) const {
        return std::count_if(monitor.operations.begin(), monitor.operations.end(),
                             [&](const auto& seen) { return seen.name == operation; });
    }
};

inline HostTensor f64(Shape shape, const std::vector<double>& values) {
    return HostTensor::of(shape, values);
}

inline HostTensor i32(Shape shape, const std::vector<std::int32_t>& values) {
    return HostTensor::of(shape, values);
}

inline double largest(const HostTensor& tensor) {
    double result = 0;
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
        result = std::fmax(result, std::fabs(tensor.at(i)));
    return result;
}

using lockstep::relative_difference;
using test::refusal;
using test::says;

}  // namespace lockstep::nn_test
