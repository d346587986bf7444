#pragma once

#include <optional>

#include "src/nn/module.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

struct ColumnParallelOptions {
    bool bias = true;
    /// If true, an all-gather gives every rank all columns of y, and the region ends
    /// here. If false, each rank keeps its own columns. Must be false with stacked
    /// layers, padding or sequence parallelism.
    bool gather_output = false;
    /// The number of columns of each layer, if the weight stacks several layers, one
    /// below another, such as queries, keys and values. Each of these layers is sharded
    /// separately. If the list is empty, the weight is one layer.
    std::vector<std::int64_t> stacked{};
    /// The maximum number of shares of each stacked layer, such as its number of key
    /// heads. If there are more ranks (a multiple of this), several ranks hold the same
    /// share. Such a layer can only infer, because gradients of copies are not summed.
    std::vector<std::int64_t> shares{};
    /// Pads with rows of zeros if the ranks do not divide the rows. If false, throws.
    bool pad = false;
};

/// y = x W^T + b with the columns of y sharded (Shoeybi et al. 2019, 1909.08053,
/// section 3). W is (out, in), PyTorch's layout. Rank r holds block r of the rows of W,
/// and computes block r of the columns of y. PlainColumnParallelLinear shows only this:
///
///     [y_1 … y_t],  y_r = x W_r^T + b_r;  dx = the sum of dy_r W_r over r
///
/// Forward sends nothing, and backward sends f's all-reduce. With sequence parallelism
/// both passes send f's all-gather; backward also sends f's reduce-scatter. x (…, in)
/// gives y (…, out/t). Saves x as passed in. Between the two halves of backward, also
/// saves dy_r. A whole backward overlaps its messages with products. Initial values are
/// those of a Linear of the same name. Throws UsageError if the columns cannot be sharded
/// over the ranks.
class ColumnParallelLinear : public Module {
  public:
    ColumnParallelLinear(const ParameterInit& init, TensorParallel& tp, std::int64_t in,
                         std::int64_t out, const ColumnParallelOptions& options = {});
    /// Uses the weight of another module (tied weights): that module's rows of the table
    /// are also this layer's rows. Counts as one more use of the weight; has no bias. The
    /// other module lists the parameter and must outlive this layer.
    ColumnParallelLinear(TensorParallel& tp, Parameter& tied);

    Parameter& weight() { return weight_; }
    /// Null if the layer has no bias.
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
    /// `x` is what f returned: all rows of the layer's input.
    void add_weight_gradients(const Tensor& x, const Tensor& dy);

    TensorParallel& tp_;
    Device& device_;
    bool gather_output_;
    bool only_infers_ = false;
    std::optional<Parameter> own_weight_;  ///< none if the weight is tied
    Parameter& weight_;
    std::optional<Parameter> bias_;
};

/// Gathers the columns of all ranks in rank order: own (N, c) gives (N, c t). Each rank
/// must have the same number of columns. Costs an all-gather of (t-1)/t of the result's
/// bytes, and a copy. Its backward is own_columns.
Tensor gather_columns(TensorParallel& tp, const Tensor& own);

/// Returns this rank's columns of a tensor that all ranks hold: whole (N, c t) gives
/// (N, c). Copies, and sends nothing. Its backward is gather_columns.
Tensor own_columns(TensorParallel& tp, const Tensor& whole);

}  // namespace lockstep
