#pragma once

#include <optional>

#include "src/nn/module.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

struct ColumnParallelOptions {
    bool bias = true;
    /// Every rank gets all columns of y, at the price of an all-gather, and
    /// the region ends there; else each keeps its own. Not with stacked
    /// layers, padding or sequence parallelism.
    bool gather_output = false;
    /// The columns of each of the layers that the weight holds one below the other, and
    /// each of which is shared out: those of queries, of keys and of values, say. If
    /// there are none, it is one layer.
    std::vector<std::int64_t> stacked{};
    /// Each of the stacked layers can be shared out to so many ranks at most, heads of
    /// keys, say. If there are more ranks, a multiple of it, several of them hold the
    /// same share. Such a layer only infers: nobody adds up the gradients of its copies.
    std::vector<std::int64_t> shares{};
    /// Rows that the ranks do not divide are filled up with zeros; else they are refused.
    bool pad = false;
};

/// y = x W^T + b with the columns of y shared out: rank r holds rows r of W
/// (out, in), PyTorch's layout, and computes columns r of y (Shoeybi et al.
/// 2019, 1909.08053, section 3); PlainColumnParallelLinear shows only this:
///
///     [y_1 … y_t],  y_r = x W_r^T + b_r;  dx = the sum of dy_r W_r over r
///
/// No message forward, f's all-reduce backward; with sequence parallelism
/// its all-gather and reduce-scatter. x (…, in) gives y (…, out/t). Saves x
/// as it came, and between the halves of backward also dy. Backward as a
/// whole hides the messages behind products. Values start as Linear's of
/// the same name. Throws UsageError unless the ranks share out the columns.
class ColumnParallelLinear : public Module {
  public:
    ColumnParallelLinear(const ParameterInit& init, TensorParallel& tp, std::int64_t in,
                         std::int64_t out, const ColumnParallelOptions& options = {});
    /// Over the weight of another module, which is tied to it: that module's rows of the
    /// table are this layer's rows. A use more of it, without bias. The other module must
    /// stay, and lists it.
    ColumnParallelLinear(TensorParallel& tp, Parameter& tied);

    Parameter& weight() { return weight_; }
    /// Null if the layer has none.
    Parameter* bias() { return bias_ ? &*bias_ : nullptr; }
    std::vector<Parameter*> parameters() override;

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    Tensor do_backward(const Tensor& dy, Saved& saved) override;
    std::vector<Parameter*> own_parameters() override;
    bool reads_in_backward(const Parameter& own) const override {
        return &own == &weight_;
    }
    void require_backward(const Tensor& dy, SourceLine at) const;
    Arriving start_backward_input(const Tensor& dy, Saved& saved);
    /// From f(x), whole.
    void add_weight_gradients(const Tensor& x, const Tensor& dy);

    TensorParallel& tp_;
    Device& device_;
    bool gather_output_;
    bool only_infers_ = false;
    std::optional<Parameter> own_weight_;  ///< none if it is tied
    Parameter& weight_;
    std::optional<Parameter> bias_;
};

/// All columns of a tensor of which each rank has as many, in rank order:
/// own (N, c) gives (N, c t). An all-gather, (t-1)/t of the result's bytes,
/// and a copy. Its backward is own_columns.
Tensor gather_columns(TensorParallel& tp, const Tensor& own);

/// This rank's columns of a tensor that all ranks hold: whole (N, c t)
/// gives (N, c). A copy, no message. Its backward is gather_columns.
Tensor own_columns(TensorParallel& tp, const Tensor& whole);

}  // namespace lockstep
