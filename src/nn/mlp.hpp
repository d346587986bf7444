#pragma once

#include "src/nn/sequential.hpp"

namespace lockstep {

/// The transformer's MLP: x (…, hidden) gives y of the same shape.
///
///     x -> c_fc (…, inner) -> GELU -> c_proj (…, hidden)
///
/// Parameters: c_fc.weight (inner, hidden), c_fc.bias, c_proj.weight (hidden, inner),
/// c_proj.bias.
std::unique_ptr<Sequential> make_mlp(const ParameterInit& init, std::int64_t hidden,
                                     std::int64_t inner);

/// The gated one (Shazeer 2020, 2002.05202), without biases:
///
///     x -> gate_up_proj (…, 2 inner) -> SwiGLU (…, inner) -> down_proj (…, hidden)
///
/// Parameters: gate_up_proj.weight (2 inner, hidden), rows of the gate before those of
/// what it gates; down_proj.weight (hidden, inner).
std::unique_ptr<Sequential> make_swiglu_mlp(const ParameterInit& init,
                                            std::int64_t hidden, std::int64_t inner);

}  // namespace lockstep
