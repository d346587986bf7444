#pragma once

#include "src/comm/communicator.hpp"
#include "src/nn/batch_norm.hpp"

namespace lockstep {

/// Batch norm over a batch that is sharded over the ranks of a line. Its statistics are
/// those of all ranks' rows, so it gives what one device gives with the whole batch
/// (PyTorch's nn.SyncBatchNorm; statistics: Ioffe and Szegedy 2015, 1502.03167,
/// algorithm 1). Ranks may have different numbers of rows: the numbers are sent with the
/// sums. A rank without rows takes part with empty tensors, by join_step
/// (uneven_inputs.hpp).
///
/// With w columns and n ranks, there are three all-reduces. Forward sums w sums and the
/// number of rows, then w squared distances from the mean. Backward sums 2 w sums for dx,
/// unless dx is not needed. Each rank sends 2(n-1)/n (4 w + 1) numbers, f32 if the model
/// is bf16, in 6(n-1) messages one after another. All of them are exposed: forward and
/// backward wait for them. infer() sends nothing.
///
/// Gradients of weight and bias are those of this rank's rows: terms of a sum, as data
/// parallelism has them of all parameters. Running statistics are the same on all ranks,
/// bit for bit. The loss must be one of the batch: with weights B_i / B.
///
/// Differs: PyTorch gathers each rank's mean, rstd and number of rows, in n - 1 messages
/// one after another with (n-1) (2 w + 1) numbers, and every rank combines them. Here
/// sums travel twice around the ring, but a rank does not send more numbers if there are
/// more ranks. Throws UsageError, like BatchNorm, for fewer than two rows if there is one
/// rank. With several ranks one row in all is allowed, as in PyTorch, although its
/// variance is 0.
class GlobalBatchNorm : public BatchNorm {
  public:
    /// The line must outlive the module. All of its ranks must go forward and backward
    /// together, the same number of times.
    GlobalBatchNorm(const ParameterInit& init, Communicator& line, std::int64_t width,
                    const BatchNormOptions& options = {});

  private:
    Tensor of_batch(const Tensor& own, SourceLine at) override;
    bool is_alone() const override { return line_.size() == 1; }

    Device& device_;
    Communicator& line_;
};

}  // namespace lockstep
