// A model, its batches, and how ranks share their rows out: for tests of data
// parallelism.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/chunks.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/train_step.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

struct RowTask {
    std::function<std::unique_ptr<Module>(const ParameterInit&)> make_model;
    Loss loss;
    /// Rows [first, first + count) of a step's batch of `all` rows, input and target.
    std::function<std::pair<HostTensor, HostTensor>(int step, int all, int first,
                                                    int count)>
        rows;
    int batch_dimension = 0;  ///< of input and prediction
};

/// Linear, tanh, linear; a GPT of two layers with a tied table. In f64.
RowTask mlp_task();
RowTask gpt_task();

/// How many rows each worker has: 3 or more, not all the same.
int rows_of_worker(int worker);
int rows_of_all(int workers);
/// The rows of a step's batch that a rank trains on, in so many micro-batches.
struct OwnRows {
    int all = 0;
    Chunk rows{};
    int micro_batches = 1;
};
OwnRows rows_of_worker(int worker, int workers, int micro_batches);
/// All workers' rows in one batch.
OwnRows all_rows(int workers);
/// With the weights that make the mean over all workers' rows.
std::vector<MicroBatch> batches_of(Device& device, const RowTask& task, int step,
                                   const OwnRows& own);
std::vector<MicroBatch> batches_of_worker(Device& device, const RowTask& task, int step,
                                          int worker, int workers, int micro_batches);

using MakeOptimizer =
    std::function<std::unique_ptr<Optimizer>(const std::vector<Parameter*>&)>;
std::unique_ptr<Optimizer> momentum_sgd(const std::vector<Parameter*>& parameters);
std::unique_ptr<Optimizer> adamw(const std::vector<Parameter*>& parameters);

/// All workers' rows on one device, in one batch.
Outcome train_on_one(const RowTask& task, int workers, int steps,
                     const MakeOptimizer& make_optimizer = momentum_sgd);

/// Keeps a step's loss of this rank's rows.
void keep_loss(Rank& rank, const Tensor& loss);
/// Keeps "value/NAME" of what this rank updates, and "grad/NAME" if that is the batch's.
void keep_updated(Rank& rank, const std::vector<Parameter*>& updated);

}  // namespace lockstep::test
