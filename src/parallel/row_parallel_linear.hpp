#pragma once

#include <optional>

#include "src/nn/module.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

/// y = x W^T + b with the columns of x sharded (Shoeybi et al. 2019, 1909.08053,
/// section 3). Rank r holds block r of the columns of x and of W (out, in), so each rank
/// has one term of the sum y:
///
///     y = the sum of x_r W_r^T over r, + b;  dx_r = dy W_r
///
/// The bias is added once, to the sum; every rank holds the bias. Forward sends g's
/// all-reduce; backward sends nothing. With sequence parallelism forward sends a
/// reduce-scatter and backward an all-gather. x (…, in/t) gives y (…, out). Saves x.
/// Between the two halves of backward, also saves the whole dy and, for the bias, dy as
/// passed in. Initial values are those of a Linear of the same name.
class RowParallelLinear : public Module {
  public:
    /// Throws UsageError unless the ranks divide the columns of x.
    RowParallelLinear(const ParameterInit& init, TensorParallel& tp, std::int64_t in,
                      std::int64_t out, bool bias = true);

    Parameter& weight() { return weight_; }
    /// Null if the layer has no bias.
    Parameter* bias() { return bias_ ? &*bias_ : nullptr; }

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    std::vector<Parameter*> own_parameters() override;
    bool reads_in_backward(const Parameter& own) const override {
        return &own == &weight_;
    }

    TensorParallel& tp_;
    Device& device_;
    Parameter weight_;
    std::optional<Parameter> bias_;
};

}  // namespace lockstep
