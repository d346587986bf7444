#pragma once

#include "src/nn/module.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

/// y = x W^T + b with the columns of y sharded, in its plainest form (Shoeybi et al.
/// 2019, Megatron-LM, 1909.08053, section 3). ColumnParallelLinear
/// (column_parallel_linear.hpp) gives the same y, overlaps its messages, and has options.
///
/// Rank r of t holds block r of the rows of W and of b, and computes block r of the
/// columns of y. W is (out, in), PyTorch's layout; x (…, in) gives y_r (…, out/t).
/// Forward sends nothing. In backward each rank has only its columns' contribution to dx;
/// an all-reduce sums the contributions (2(t-1)/t of dx's bytes). Initial values are
/// those of a Linear of the same name.
class PlainColumnParallelLinear : public Module {
  public:
    /// Throws UsageError unless the ranks divide the columns and each rank has the whole
    /// x. So sequence parallelism is refused.
    PlainColumnParallelLinear(const ParameterInit& init, TensorParallel& tp,
                              std::int64_t in, std::int64_t out);

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    std::vector<Parameter*> own_parameters() override { return {&weight_, &bias_}; }
    bool reads_in_backward(const Parameter& own) const override {
        return &own == &weight_;
    }

    TensorParallel& tp_;
    Device& device_;
    Parameter weight_;
    Parameter bias_;
};

}  // namespace lockstep
