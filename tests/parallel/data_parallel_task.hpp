// A model, its batches, and the sharding of rows over ranks. For tests of data
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
    /// Returns the input and target of rows [first, first + count) of a step's batch,
    /// which has `all` rows.
    std::function<std::pair<HostTensor, HostTensor>(int step, int all, int first,
                                                    int count)>
        rows;
    int batch_dimension = 0;  ///< the dimension of rows in input and prediction
};

/// mlp_task(): linear, tanh, linear. gpt_task(): two layers and a tied table. In f64.
RowTask mlp_task();
RowTask gpt_task();

/// Returns how many rows a worker has: at least 3, and not the same for all workers.
int rows_of_worker(int worker);
int rows_of_all(int workers);
/// The rows of a step's batch that a rank trains on, in `micro_batches` micro-batches.
struct OwnRows {
    int all = 0;
    Chunk rows{};
    int micro_batches = 1;
};
OwnRows rows_of_worker(int worker, int workers, int micro_batches);
/// All workers' rows in one batch.
OwnRows all_rows(int workers);
/// Returns batches whose weights give the mean over all workers' rows.
std::vector<MicroBatch> batches_of(Device& device, const RowTask& task, int step,
                                   const OwnRows& own);
std::vector<MicroBatch> batches_of_worker(Device& device, const RowTask& task, int step,
                                          int worker, int workers, int micro_batches);

using MakeOptimizer =
    std::function<std::unique_ptr<Optimizer>(const std::vector<Parameter*>&)>;
std::unique_ptr<Optimizer> momentum_sgd(const std::vector<Parameter*>& parameters);
std::unique_ptr<Optimizer> adamw(const std::vector<Parameter*>& parameters);

/// Trains one device on all workers' rows, in one batch.
Outcome train_on_one(const RowTask& task, int workers, int steps,
                     const MakeOptimizer& make_optimizer = momentum_sgd);

/// Keeps a step's loss for this rank's rows.
void keep_loss(Rank& rank, const Tensor& loss);
/// Keeps "value/NAME" of each parameter that this rank updates, and "grad/NAME" if the
/// gradient is that of the whole batch.
void keep_updated(Rank& rank, const std::vector<Parameter*>& updated);

}  // namespace lockstep::test
