#pragma once

#include <optional>

#include "src/nn/module.hpp"

namespace lockstep {

/// y = x W^T + b, in PyTorch's layout: weight W is (out, in), bias b is (out).
///
/// x (…, in) gives y (…, out). Forward costs 2 N in out flops for N rows of x; each half
/// of backward costs the same. Saves x and, between the two halves of backward, also dy.
///
/// Weight and bias start uniform in ±1/sqrt(in), as in PyTorch's nn.Linear: element i of
/// "hidden.weight" is number i of RandomStream(seed, "hidden.weight"), so a shard can
/// draw its slice of the whole.
class Linear : public Module {
  public:
    /// Throws UsageError unless in and out are positive.
    Linear(const ParameterInit& init, std::int64_t in, std::int64_t out,
           bool bias = true);
    /// Uses the weight (out, in) of another module on this device (tied weights). Counts
    /// as one more use of the weight; has no bias. The other module lists the weight and
    /// must outlive this layer.
    Linear(Device& device, Parameter& tied);

    Parameter& weight() { return weight_; }
    /// Null if the layer has no bias.
    Parameter* bias() { return bias_ ? &*bias_ : nullptr; }
    std::vector<Parameter*> parameters() override;

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    std::vector<Parameter*> own_parameters() override;
    bool reads_in_backward(const Parameter& own) const override {
        return &own == &weight_;
    }

    Device& device_;
    std::optional<Parameter> own_weight_;  ///< none if the weight is tied
    Parameter& weight_;
    std::optional<Parameter> bias_;
};

/// Returns the weight's shape, (out, in). Throws UsageError unless both are positive.
Shape linear_shape(const ParameterInit& init, std::int64_t in, std::int64_t out);
/// Throws a UsageError that names the weight unless the tensor has `columns` columns.
void require_columns(const Parameter& weight, const char* what, const Tensor& tensor,
                     std::int64_t columns);

}  // namespace lockstep
