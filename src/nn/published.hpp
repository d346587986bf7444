#pragma once

#include <map>
#include <string>

#include "src/core/host_tensor.hpp"
#include "src/nn/module.hpp"

namespace lockstep {

/// How published weights are named and laid out.
enum class Published {
    /// GPT-2's names on Hugging Face: "h.0.attn.c_attn.weight", with or without
    /// "transformer." in front. Linear layers are (in, out).
    gpt2,
    /// Llama's names on Hugging Face: "model.layers.0.self_attn.q_proj.weight". There,
    /// the layers that share one weight here (such as q, k and v) have separate weights.
    /// A head's columns have the order that Device::rotate expects.
    llama
};

/// Fills the parameters of a GPT, or of some of its layers, with published weights (f32
/// or f64). The parameters may be whole or shards. The sizes must be the published ones:
/// for GPT-2 tied and GeluForm::tanh; for Llama rms_norm, swiglu, rotary positions and no
/// biases. Tensors without a parameter (masks, other layers) are ignored. Throws a
/// UsageError that names parameter and tensor if a tensor is missing or does not fit.
void load_published(Module& gpt, const std::map<std::string, HostTensor>& tensors,
                    Published layout);

}  // namespace lockstep
