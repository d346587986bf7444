#pragma once

#include "src/nn/module.hpp"

namespace lockstep {

/// A module that keeps only its input for backward, and runs its forward again then: all
/// else that it would have saved is there for that moment only (Chen et al. 2016,
/// 1604.06174, section 4). Same bits, one forward more. Parameters keep their names.
class Recompute : public Module {
  public:
    explicit Recompute(std::unique_ptr<Module> module);

    std::vector<Parameter*> parameters() override { return module_->parameters(); }
    void set_input_gradient(bool needed) override;

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    Tensor do_backward(const Tensor& dy, Saved& saved) override;
    Tensor do_infer(const Tensor& x, SourceLine at) override;

    std::unique_ptr<Module> module_;
};

}  // namespace lockstep
