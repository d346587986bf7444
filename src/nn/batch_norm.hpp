#pragma once

#include <string>

#include "src/nn/module.hpp"

namespace lockstep {

struct BatchNormOptions {
    double epsilon = 1e-5;
    /// Running statistics move by this fraction towards each batch's statistics.
    double momentum = 0.1;
};

/// Batch norm: y = (x - mean) rstd * weight + bias, with the mean and
/// rstd = 1 / sqrt(variance + epsilon) of each column over the rows of the batch (Ioffe
/// and Szegedy 2015, 1502.03167, algorithm 1). PyTorch's nn.BatchNorm1d computes the same
/// for x (rows, width).
///
/// x (…, width) gives y of the same shape; all dimensions except the last are rows.
/// weight and bias are (width) and start as ones and zeros. A row's result depends on all
/// other rows. So the results of micro-batches, or of ranks' shares, do not add up to the
/// results of the batch; ranks can use GlobalBatchNorm
/// (src/parallel/global_batch_norm.hpp). Throws UsageError for fewer than two rows.
///
/// forward() also updates the running statistics, which infer() uses and buffers()
/// returns. If a forward runs again (recompute), it updates them again.
///
/// Saves x, and the sum, mean and rstd of each column. Between the two halves of
/// backward, it keeps only two sums per column.
class BatchNorm : public Module {
  public:
    /// Throws UsageError unless the width is positive.
    BatchNorm(const ParameterInit& init, std::int64_t width,
              const BatchNormOptions& options = {});

    Parameter& weight() { return weight_; }
    Parameter& bias() { return bias_; }
    /// Each is (width), in f32 if weights are bf16. The mean starts as zeros, the
    /// (unbiased) variance as ones. Names: "NAME.running_mean" and "NAME.running_var".
    const Tensor& running_mean() const { return running_.mean; }
    const Tensor& running_variance() const { return running_.variance; }
    std::vector<Buffer> buffers() override {
        // Ranks that see other rows have other statistics.
        return {{name_ + "running_mean", running_.mean, !is_alone()},
                {name_ + "running_var", running_.variance, !is_alone()}};
    }

  private:
    /// Returns the sum of `own` over all ranks that share the batch.
    virtual Tensor of_batch(const Tensor& own, SourceLine /*at*/) { return own; }
    /// Returns whether no other rank has rows of the batch.
    virtual bool is_alone() const { return true; }

    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    Tensor do_infer(const Tensor& x, SourceLine at) override;
    std::vector<Parameter*> own_parameters() override { return {&weight_, &bias_}; }
    bool reads_in_backward(const Parameter& own) const override {
        return &own == &weight_;
    }

    Device& device_;
    Parameter weight_;
    Parameter bias_;
    std::string name_;  ///< as a prefix
    RunningMoments running_;
    double epsilon_;
};

}  // namespace lockstep
