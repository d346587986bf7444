// A GPT trained on one device, and on a pipeline's stages.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/cluster.hpp"
#include "src/nn/gpt.hpp"
#include "src/pipeline/generators.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::test {

struct GptTask {
    GptSizes sizes;
    std::int64_t length = 5;
    std::int64_t batch = 2;  ///< sequences of a micro-batch
    int micro_batches = 4;   ///< of all replicas together
    int steps = 3;
    DType dtype = DType::f64;

    // Mistakes.
    bool forget_tie = false;
    bool forget_replicas = false;
    sim::CheckLevel check = sim::check_level_asked();
    bool correct() const { return !forget_tie && !forget_replicas; }
};

/// Eight layers, so that up to eight parts have one each.
GptTask small_gpt(bool tied = false);

struct GptTrained {
    std::vector<double> losses;
    std::map<std::string, HostTensor> first_gradients;
    std::map<std::string, HostTensor> values;  ///< after the last step
    RunReport report;
};

/// One device, one micro-batch after another.
GptTrained train_alone(const GptTask& task);

/// The schedule's stages, times replicas that share out the micro-batches. Requires that
/// replicas, and copies of a tied table, have the same bits, unless
/// there is a mistake; then the first rank's are taken.
GptTrained train_pipeline(const GptTask& task, const Schedule& schedule,
                          int replicas = 1);

/// The largest relative difference of any tensor or loss; infinite where one has what the
/// other has not.
double largest_difference(const GptTrained& a, const GptTrained& b);
/// Whether all bits agree.
bool same_bits(const GptTrained& a, const GptTrained& b);

}  // namespace lockstep::test
