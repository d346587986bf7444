#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/module.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/train_step.hpp"
#include "src/report/record.hpp"
#include "src/trial/outcome.hpp"
#include "src/trial/training.hpp"

namespace lockstep::lessons {

/// A micro-batch in host memory.
struct HostBatch {
    HostTensor input;
    HostTensor target;
    double weight = 1;
};

/// Makes the strategy that adds up the ranks' terms of each gradient.
using MakeStrategy = std::function<std::unique_ptr<GradientSync>(Rank&, Module&)>;

/// Makes the strategy for replicas: one all-reduce for each parameter.
std::unique_ptr<GradientSync> all_reduce_strategy(Rank& rank, Module& model);

/// A training: the model, its data and the number of steps. It is the same for one
/// device and for many.
struct Training {
    std::function<std::unique_ptr<Module>(const ParameterInit&)> make_model;
    std::function<std::unique_ptr<Optimizer>(std::vector<Parameter*>)> make_optimizer;
    Loss loss = mean_squared_error;
    /// Returns the micro-batches of a rank at a step.
    std::function<std::vector<HostBatch>(int rank, int step)> batches;
    bool same_batches = false;  ///< every step uses the batches of step 0
    MakeStrategy strategy{};    ///< if empty, each rank trains without other ranks
    int steps = 1;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
};

/// Trains on every rank of the cluster. Each rank keeps its first parameters under
/// "initial/NAME", the first step's gradients under "grad/NAME", its last parameters
/// under their names, and its share of each step's loss in the series "loss".
RunReport train(Cluster& cluster, const Training& training, const Advance& advance = {});

/// Copies the batches to the device.
std::vector<MicroBatch> upload(Device& device, const std::vector<HostBatch>& batches);

/// Adds the tensors that ranks kept to the record's outputs as "variant/NAME", except for
/// the initial ones, and the losses as "variant/loss".
void record_variant(Record& record, const std::string& variant, const RunReport& report);

/// Adds the initial parameters to the record's inputs as
/// "task/initial/NAME".
void record_initial(Record& record, const std::string& task, const RunReport& report);

/// Returns the largest relative difference between two runs' last parameters.
double parameter_difference(const RunReport& a, const RunReport& b);

/// Returns the number of ranks whose last parameters differ in any bit from rank 0's.
int replicas_that_differ(const RunReport& report);

}  // namespace lockstep::lessons
