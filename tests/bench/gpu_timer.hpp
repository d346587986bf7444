#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "gpu/check.hpp"
#include "gpu/device.hpp"

namespace lockstep::bench {

inline double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// Measures the seconds of one launch on the device, by events. Averages over several
/// launches. The launches follow each other closely, so they hide the host's work.
class Timer {
  public:
    explicit Timer(gpu::Device& device) : device_(device) {}

    double seconds_of(const std::function<void()>& work) {
        device_.synchronize();
        device_.stream().record(begin_);
        for (int launch = 0; launch < kLaunches; ++launch)
            work();
        device_.stream().record(end_);
        device_.synchronize();
        float milliseconds = 0;
        GPU_CHECK(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()));
        return milliseconds / 1000 / kLaunches;
    }

  private:
    static constexpr int kLaunches = 10;

    gpu::Device& device_;
    gpu::Event begin_{gpu::Event::Timing::on};
    gpu::Event end_{gpu::Event::Timing::on};
};

}  // namespace lockstep::bench
