#pragma once

#include "src/comm/communicator.hpp"
#include "src/nn/batch_norm.hpp"

namespace lockstep {

/// Batch norm whose batch is dealt out over the ranks of a line: its statistics are those
/// of all ranks' rows, so that it gives what one device gives with the whole batch
/// (PyTorch's nn.SyncBatchNorm; statistics: Ioffe and Szegedy 2015, 1502.03167, algorithm
/// 1). Ranks may have different numbers of rows: numbers travel with the sums. A rank
/// without rows goes forward and backward with none, by join_step (uneven_inputs.hpp).
///
/// With w columns and n ranks, three all-reduces: forward adds up w sums and the number
/// of rows, then w squared distances from the mean; backward adds up 2 w sums that dx
/// needs, unless nobody wants dx. Each rank sends 2(n-1)/n (4 w + 1) numbers, f32 if the
/// model is bf16, in 6(n-1) messages one after another, which nothing hides: forward and
/// backward both wait for them. infer() sends nothing.
///
/// Gradients of weight and bias are those of this rank's rows: terms of a sum, as data
/// parallelism has them of all parameters. Running statistics are the same on all ranks,
/// bit for bit. The loss has to be one of the batch: with weights B_i / B.
///
/// Differs: PyTorch gathers each rank's mean, rstd and number of rows, n - 1 messages
/// one after another with (n-1) (2 w + 1) numbers, and combines them on every rank; here
/// sums go twice round the ring, and numbers stay the same for more ranks. Throws
/// UsageError, as BatchNorm, for fewer than two rows if there is one rank. Several ranks
/// are not refused one row in all, as in PyTorch, though its variance is 0.
class GlobalBatchNorm : public BatchNorm {
  public:
    /// The line must stay as long as the module. All of its ranks go forward and backward
    /// together, each as often as the others.
    GlobalBatchNorm(const ParameterInit& init, Communicator& line, std::int64_t width,
                    const BatchNormOptions& options = {});

  private:
    Tensor of_batch(const Tensor& own, SourceLine at) override;
    bool is_alone() const override { return line_.size() == 1; }

    Device& device_;
    Communicator& line_;
};

}  // namespace lockstep
