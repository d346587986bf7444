#pragma once

#include "src/comm/communicator.hpp"
#include "src/nn/batch_norm.hpp"

namespace lockstep {

/// Batch norm over a batch that is sharded over the ranks of a line. The statistics cover
/// all ranks' rows, so the result is the same as on one device with the whole batch
/// (PyTorch's nn.SyncBatchNorm; statistics: Ioffe and Szegedy 2015, 1502.03167,
/// algorithm 1). Ranks may have different numbers of rows: the numbers are sent with the
/// sums. A rank without rows calls join_step (uneven_inputs.hpp), which takes part with
/// empty tensors.
///
/// With w columns, there are three all-reduces. Forward runs two: one for w sums and the
/// number of rows, one for w sums of squared distances from the mean. Backward runs one
/// for 2 w sums, if dx is needed. Each of n ranks sends 2(n-1)/n (4 w + 1) numbers (f32
/// if the model is bf16) in 6(n-1) messages, one after another. All messages are exposed:
/// forward and backward wait for them. infer() sends nothing.
///
/// The gradients of weight and bias are this rank's terms of a sum, as for all parameters
/// in data parallelism. Running statistics are the same on all ranks, bit for bit. The
/// loss must be that of the whole batch: use the weights B_i / B.
///
/// Differs: PyTorch gathers each rank's mean, rstd and number of rows, and every rank
/// combines them. There each rank sends (n-1) (2 w + 1) numbers in n - 1 messages, one
/// after another. Here sums travel twice around the ring, but the numbers per rank do not
/// grow with n. If there is only one rank, throws UsageError for fewer than two rows,
/// like BatchNorm. With several ranks, one row in all is allowed, as in PyTorch, although
/// its variance is 0.
class GlobalBatchNorm : public BatchNorm {
  public:
    /// The line must outlive the module. All ranks of the line must run forward and
    /// backward together, the same number of times.
    GlobalBatchNorm(const ParameterInit& init, Communicator& line, std::int64_t width,
                    const BatchNormOptions& options = {});

  private:
    Tensor of_batch(const Tensor& own, SourceLine at) override;
    bool is_alone() const override { return line_.size() == 1; }

    Device& device_;
    Communicator& line_;
};

}  // namespace lockstep
