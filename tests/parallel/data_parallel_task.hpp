// A model, its batches, and how ranks share their rows out: for tests of data
// parallelism.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/cluster.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/train_step.hpp"

namespace lockstep::test {

struct Task {
    std::function<std::unique_ptr<Module>(const ParameterInit&)> make_model;
    Loss loss;
    /// Rows [first, first + count) of a step's batch of `all` rows, input and target.
    std::function<std::pair<HostTensor, HostTensor>(int step, int all, int first,
                                                    int count)>
        rows;
    int batch_dimension = 0;  ///< of input and prediction
};

/// Linear, tanh, linear; a GPT of two layers with a tied table. In f64.
Task mlp_task();
Task gpt_task();

/// How many rows each worker has: 3 or more, not all the same.
int rows_of_worker(int worker);
int rows_of_all(int workers);
/// The worker's rows of a step in so many micro-batches, with the weights that make the
/// mean over all workers' rows.
std::vector<MicroBatch> batches_of_worker(Device& device, const Task& task, int step,
                                          int worker, int workers, int micro_batches);

/// Losses of each step, and tensors by name.
struct Course {
    std::vector<double> losses;
    std::map<std::string, HostTensor> values;
    std::map<std::string, HostTensor> gradients;  ///< of the last step
    RunReport report;
};
using MakeOptimizer =
    std::function<std::unique_ptr<Optimizer>(const std::vector<Parameter*>&)>;
std::unique_ptr<Optimizer> momentum_sgd(const std::vector<Parameter*>& parameters);
std::unique_ptr<Optimizer> adamw(const std::vector<Parameter*>& parameters);

/// All workers' rows on one device, in one batch.
Course train_on_one(const Task& task, int workers, int steps,
                    const MakeOptimizer& make_optimizer = momentum_sgd);
/// Requires that losses, values and gradients agree within 1e-12.
void check_same(const Course& many, const Course& one);

/// Keeps values, and gradients that are the batch's, of what this rank updates.
void keep_updated(Rank& rank, const std::vector<Parameter*>& updated);
/// Puts together what ranks kept.
void collect(Course& course, RunReport report);

}  // namespace lockstep::test
