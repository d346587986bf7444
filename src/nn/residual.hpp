#pragma once

#include "src/nn/module.hpp"

namespace lockstep {

/// y = x + f(x), f the branch (He et al. 2015, 1512.03385, section 3). Saves nothing of
/// its own.
///
/// The sum is taken in what the branch gives, forward and backward, so the branch must
/// give tensors that it does not keep: UsageError where somebody does.
class Residual : public Module {
  public:
    explicit Residual(std::unique_ptr<Module> branch);

    Module& branch() { return *branch_; }
    std::vector<Parameter*> parameters() override { return branch_->parameters(); }

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    Tensor do_backward(const Tensor& dy, Saved& saved) override;

    std::unique_ptr<Module> branch_;
};

}  // namespace lockstep
