#pragma once

#include "src/nn/module.hpp"

namespace lockstep {

/// y = (x - mean) rstd * weight + bias over the last dimension, with
/// rstd = 1 / sqrt(variance + epsilon). The variance of a row divides by n, not by n - 1
/// (Ba, Kiros and Hinton 2016, 1607.06450, section 3).
///
/// x (…, width) gives y of the same shape; weight and bias are (width) and start as ones
/// and zeros. Saves x, each row's mean and rstd and, between the two halves of backward,
/// also dy.
class LayerNorm : public Module {
  public:
    LayerNorm(const ParameterInit& init, std::int64_t width, double epsilon = 1e-5);

    Parameter& weight() { return weight_; }
    Parameter& bias() { return bias_; }

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    std::vector<Parameter*> own_parameters() override { return {&weight_, &bias_}; }
    bool reads_in_backward(const Parameter& own) const override {
        return &own == &weight_;
    }

    Device& device_;
    Parameter weight_;
    Parameter bias_;
    double epsilon_;
};

/// y = x rstd * weight over the last dimension, with
/// rstd = 1 / sqrt(mean(x^2) + epsilon): layer norm without mean and bias (Zhang and
/// Sennrich 2019, 1910.07467). Differs: adds epsilon, as PyTorch's nn.RMSNorm does.
///
/// x (…, width) gives y of the same shape; weight is (width) and starts as ones. Saves x,
/// each row's rstd and, between the two halves of backward, also dy.
class RmsNorm : public Module {
  public:
    RmsNorm(const ParameterInit& init, std::int64_t width, double epsilon = 1e-5);

    Parameter& weight() { return weight_; }

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    std::vector<Parameter*> own_parameters() override { return {&weight_}; }

    Device& device_;
    Parameter weight_;
    double epsilon_;
};

}  // namespace lockstep
