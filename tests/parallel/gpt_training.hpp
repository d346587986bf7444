// A GPT trained on one device and on t that share out its weights.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/nn/gpt.hpp"
#include "src/run/run_report.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

struct Lessons {
    GptSizes sizes;
    std::int64_t length = 0;
    std::int64_t batch = 0;
    int steps = 1;
    DType dtype = DType::f64;
    bool numbers = true;
    bool adamw = false;  ///< else SGD with momentum
};

struct Trained {
    std::vector<double> losses;
    std::map<std::string, HostTensor> first_gradients;
    std::map<std::string, HostTensor> values;  ///< after the last step
    RunReport report;
};

Trained train_alone(const Lessons& lessons);
Trained train_shared(int ranks, Regions kind, const Lessons& lessons);

/// The largest relative difference of any tensor of the two.
double largest_difference(const std::map<std::string, HostTensor>& a,
                          const std::map<std::string, HostTensor>& b);

}  // namespace lockstep::test
