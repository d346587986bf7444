#pragma once

#include "src/nn/module.hpp"

namespace lockstep {

/// x (B, …) seen as (B, the product of the rest), without a copy: PyTorch's nn.Flatten.
/// Saves the shape of x, no memory.
class Flatten : public Module {
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
};

}  // namespace lockstep
