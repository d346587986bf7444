#pragma once

#include "src/nn/module.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

/// y = x W^T + b with the columns of y shared out, as plainly as it can be said (Shoeybi
/// et al. 2019, Megatron-LM, 1909.08053, section 3). ColumnParallelLinear
/// (column_parallel_linear.hpp) gives the same, hides its messages, and has options.
///
/// Rank r of t holds rows r of W (out, in), PyTorch's layout, and of b (out), and
/// computes columns r of y: x (…, in) gives y_r (…, out/t). No message forward. Backward
/// each rank has only what its columns contribute to dx: an all-reduce adds them up,
/// 2(t-1)/t of dx's bytes. Values start as Linear's of the same name.
class PlainColumnParallelLinear : public Module {
  public:
    /// Throws UsageError unless the ranks share out the columns equally, and all of them
    /// hold x whole: not with sequence parallelism.
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
