#pragma once

#include "src/nn/gpt_kit.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep {

/// Multi-head self-attention: x (s, b, hidden) gives y of the same shape.
///
///     x -> c_attn (s, b, (a + 2 g) width) -> core (s, b, hidden) -> c_proj
///
/// Parameters: c_attn.weight ((a + 2 g) width, hidden), with the rows of queries, then of
/// keys, then of values, each head by head; c_attn.bias; c_proj.weight (hidden, hidden);
/// c_proj.bias. Throws UsageError unless the heads divide hidden.
std::unique_ptr<Sequential> make_attention(const ParameterInit& init, std::int64_t hidden,
                                           const AttentionSizes& sizes,
                                           const GptKit& kit = {});

/// Makes a block's attention: make_attention, or LatentAttention. LatentAttention needs
/// all heads and tokens on one device: throws UsageError if the kit shards them.
std::unique_ptr<Module> make_attention_of(const ParameterInit& init,
                                          const BlockSizes& sizes,
                                          const GptKit& kit = {});
/// Throws UsageError unless a kit can make latent attention of these sizes. The attention
/// must be causal and have rotary positions, and the kit must not shard its layers.
void require_latent(const ParameterInit& init, const BlockSizes& sizes,
                    const GptKit& kit);

/// The transformer's MLP: x (…, hidden) gives y of the same shape.
///
///     x -> c_fc (…, inner) -> GELU -> c_proj (…, hidden)
///
/// Parameters: c_fc.weight (inner, hidden), c_fc.bias, c_proj.weight (hidden, inner),
/// c_proj.bias.
std::unique_ptr<Sequential> make_mlp(const ParameterInit& init, std::int64_t hidden,
                                     std::int64_t inner, const GptKit& kit = {},
                                     GeluForm gelu = GeluForm::exact, bool bias = true);

/// The gated MLP (Shazeer 2020, 2002.05202), without biases:
///
///     x -> gate_up_proj (…, 2 inner) -> SwiGLU (…, inner) -> down_proj (…, hidden)
///
/// Parameters: gate_up_proj.weight (2 inner, hidden), with the gate rows before the up
/// rows; down_proj.weight (hidden, inner).
std::unique_ptr<Sequential> make_swiglu_mlp(const ParameterInit& init,
                                            std::int64_t hidden, std::int64_t inner,
                                            const GptKit& kit = {});

/// A layer of experts. Each expert is an MLP of the block's kind without biases; a gate
/// chooses some experts for each token. A shared expert has the kit's linear layers. See
/// MixtureOfExperts. Throws UsageError if the kit shards layers over devices, but does
/// not say how devices shard experts.
std::unique_ptr<Module> make_experts(const ParameterInit& init, const BlockSizes& sizes,
                                     const GptKit& kit = {});

/// A pre-norm transformer block (Radford et al. 2019, GPT-2, section 2.3): x (s, b, h)
/// gives y of the same shape.
///
///     x = x + attn(ln_1(x));  y = x + mlp(ln_2(x))
std::unique_ptr<Sequential> make_block(const ParameterInit& init, const BlockSizes& sizes,
                                       const GptKit& kit = {});

/// A GPT: logits of the next token at every position.
///
///     ids (s, b), i32 -> wte + wpe (s, b, h) -> L blocks -> ln_f -> lm_head (s, b, V)
///
/// The sequence comes first, then the batch, as in Megatron, so that a part of the
/// sequence is contiguous. Parameters have the names of PyTorch GPTs and the layouts of
/// nn.Linear and nn.Embedding: "transformer.wte.weight" (V, h), "transformer.wpe.weight"
/// (C, h); for each layer i "transformer.h.i.ln_1.weight", ".ln_1.bias",
/// ".attn.c_attn.weight" (3 h, h), …; "transformer.ln_f.weight", "transformer.ln_f.bias";
/// "lm_head.weight" (V, h), without a bias. With fewer heads of keys and values, c_attn
/// has fewer rows. With rotary positions there is no wpe. Throws UsageError if sizes are
/// not positive or heads do not divide h.
std::unique_ptr<Sequential> make_gpt(const ParameterInit& init, const GptSizes& sizes,
                                     const GptKit& kit = {});

/// Makes layers [first, last) of a GPT whose layers are split over devices; layers are
/// counted as in layer_count(). The input is (s, b) or (s, b, h), the output (s, b, h) or
/// (s, b, V). If a tied head's wte is not among the layers, the head reads `table`, the
/// weight of wte on this device. If `table` is null, the head has its own parameter with
/// the same name and initial values; the caller must keep both parameters equal.
std::unique_ptr<Sequential> make_gpt_layers(const ParameterInit& init,
                                            const GptSizes& sizes, int first, int last,
                                            const GptKit& kit = {},
                                            Parameter* table = nullptr);

inline constexpr const char* kGptTable = "transformer.wte.weight";

/// Returns the parameter of that name; null if the module has no such parameter.
Parameter* find_parameter(Module& module, const std::string& name);

}  // namespace lockstep
