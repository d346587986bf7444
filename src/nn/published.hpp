#pragma once

#include <map>
#include <string>

#include "src/core/host_tensor.hpp"
#include "src/nn/module.hpp"

namespace lockstep {

/// How published weights are named and laid out.
enum class Published {
    /// GPT-2's on Hugging Face: "h.0.attn.c_attn.weight", linear layers as (in, out),
    /// with or without "transformer." in front.
    gpt2,
    /// Llama's on Hugging Face: "model.layers.0.self_attn.q_proj.weight". Layers that lie
    /// one below another here are separate; heads have the order that Device::rotate
    /// expects.
    llama
};

/// Fills the parameters of a GPT, or of some of its layers, whole or shards, with
/// published weights; f32 and f64 are accepted. Its sizes must be the publisher's: for
/// GPT-2 tied, GeluForm::tanh; for Llama rms_norm, swiglu, without biases, rotary
/// positions. Tensors that the GPT has no place for (masks, other layers') are ignored.
/// Throws UsageError, which names both sides, if one is missing or has another shape.
void load_published(Module& gpt, const std::map<std::string, HostTensor>& tensors,
                    Published layout);

}  // namespace lockstep
