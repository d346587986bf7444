#pragma once

#include "src/nn/module.hpp"

namespace lockstep {

/// y = tanh(x), element by element. Saves y, because dx = dy (1 - y^2). If the next layer
/// also saves y, as its input, memory has y only once.
class Tanh : public Module {
  public:
    explicit Tanh(Device& device) : device_(device) {}

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;

    Device& device_;
};

/// y = x Phi(x) with the normal distribution function Phi (Hendrycks and Gimpel 2016,
/// 1606.08415, section 2), or with an approximation of Phi by tanh. Saves x.
class Gelu : public Module {
  public:
    explicit Gelu(Device& device, GeluForm form = GeluForm::exact)
        : device_(device), form_(form) {}

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;

    Device& device_;
    GeluForm form_;
};

/// y = silu(gate) * rest for x (…, 2 width); the first half of x is the gate, and y is
/// (…, width). With a linear layer before it and another linear layer after it, this is
/// the SwiGLU MLP (Shazeer 2020, 2002.05202, section 2). Saves x.
class Swiglu : public Module {
  public:
    explicit Swiglu(Device& device) : device_(device) {}

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;

    Device& device_;
};

}  // namespace lockstep
