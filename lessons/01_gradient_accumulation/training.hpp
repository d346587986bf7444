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

/// A micro-batch before it is on a device.
struct HostBatch {
    HostTensor input;
    HostTensor target;
    double weight = 1;
};

/// Makes what decides how gradients become whole of which ranks have terms.
using MakeStrategy = std::function<std::unique_ptr<GradientSync>(Rank&, Module&)>;

/// Every rank is a replica: one all-reduce a parameter.
std::unique_ptr<GradientSync> all_reduce_strategy(Rank& rank, Module& model);

/// A training: the model, its data and the number of steps. It is the same
/// for one device and for many.
struct Training {
    std::function<std::unique_ptr<Module>(const ParameterInit&)> make_model;
    std::function<std::unique_ptr<Optimizer>(std::vector<Parameter*>)> make_optimizer;
    Loss loss = mean_squared_error;
    /// The micro-batches of a rank at a step.
    std::function<std::vector<HostBatch>(int rank, int step)> batches;
    bool same_batches = false;  ///< every step takes those of step 0
    MakeStrategy strategy{};    ///< without, a rank trains by itself
    int steps = 1;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
};

/// Trains on every rank of the cluster. Each rank keeps its parameters after the last
/// step under their names, before the first one under "initial/NAME", the first step's
/// gradients under "grad/NAME", and its share of each step's loss in the series "loss".
RunReport train(Cluster& cluster, const Training& training, const Advance& advance = {});

/// Returns the batches on the device.
std::vector<MicroBatch> upload(Device& device, const std::vector<HostBatch>& batches);

/// Adds to the record's outputs what ranks kept, as "variant/NAME", and
/// the losses, as "variant/loss".
void record_variant(Record& record, const std::string& variant, const RunReport& report);

/// Adds to the record's inputs what ranks began with, as
/// "task/initial/NAME".
void record_initial(Record& record, const std::string& task, const RunReport& report);

/// The largest relative difference between the parameters that two runs ended with.
double parameter_difference(const RunReport& a, const RunReport& b);

/// How many ranks of a run ended with other bits than rank 0.
int replicas_that_differ(const RunReport& report);

}  // namespace lockstep::lessons
