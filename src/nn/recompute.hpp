#pragma once

#include "src/nn/wrapper.hpp"

namespace lockstep {

/// A module that keeps only its input for backward, and runs its forward again then: all
/// else that it would have saved is there for that moment only (Chen et al. 2016,
/// 1604.06174, section 4). Same bits, one forward more.
class Recompute : public Wrapper {
  public:
    explicit Recompute(std::unique_ptr<Module> module);

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    Tensor do_backward(const Tensor& dy, Saved& saved) override;
    void forward_again(Saved& saved);
};

}  // namespace lockstep
