#pragma once

#include "src/nn/gpt_kit.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep {

/// Multi-head self-attention: x (s, b, hidden) gives y of the same shape.
///
///     x -> c_attn (s, b, (a + 2 g) width) -> core (s, b, hidden) -> c_proj
///
/// Parameters: c_attn.weight ((a + 2 g) width, hidden): rows of the queries, the keys,
/// the values, each head by head; c_attn.bias, c_proj.weight (hidden, hidden),
/// c_proj.bias. Throws UsageError unless heads divide hidden.
std::unique_ptr<Sequential> make_attention(const ParameterInit& init, std::int64_t hidden,
                                           const AttentionSizes& sizes,
                                           const GptKit& kit = {});

/// The attention of a block: make_attention, or LatentAttention, which works on one
/// device's heads and tokens. Throws UsageError if the kit shares them out.
std::unique_ptr<Module> make_attention_of(const ParameterInit& init,
                                          const BlockSizes& sizes,
                                          const GptKit& kit = {});
/// For kits that make latent attention: throws UsageError unless it is causal, with
/// rotary positions, of layers that nobody shares out.
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

/// The gated one (Shazeer 2020, 2002.05202), without biases:
///
///     x -> gate_up_proj (…, 2 inner) -> SwiGLU (…, inner) -> down_proj (…, hidden)
///
/// Parameters: gate_up_proj.weight (2 inner, hidden), rows of the gate before those of
/// what it gates; down_proj.weight (hidden, inner).
std::unique_ptr<Sequential> make_swiglu_mlp(const ParameterInit& init,
                                            std::int64_t hidden, std::int64_t inner,
                                            const GptKit& kit = {});

/// A layer of experts, each an MLP of the block's kind without biases, of which a gate
/// chooses some for each token; and a shared one of the kit's linear layers. See
/// MixtureOfExperts. Throws UsageError if the kit shares out layers to devices, but does
/// not say how they share out experts.
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
/// The sequence comes first, then the batch, as Megatron has it: then a part of the
/// sequence is contiguous. Parameters are named as in PyTorch GPTs, and laid out as
/// nn.Linear and nn.Embedding have them: "transformer.wte.weight" (V, h),
/// "transformer.wpe.weight" (C, h), for each layer i "transformer.h.i.ln_1.weight",
/// ".ln_1.bias", ".attn.c_attn.weight" (3 h, h), or fewer rows with fewer heads of keys
/// and values …, "transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight"
/// (V, h), which has no bias. With rotary positions there is no wpe. Throws UsageError
/// for sizes that are not positive, or heads that do not divide h.
std::unique_ptr<Sequential> make_gpt(const ParameterInit& init, const GptSizes& sizes,
                                     const GptKit& kit = {});

/// Layers [first, last) of it, for devices that share it out, counted as layer_count()
/// does: (s, b) or (s, b, h) in, (s, b, h) or (s, b, V) out. A tied head whose wte is not
/// among them reads `table`, which is that parameter on this device; where that is null,
/// it has its own, of the same name and first values, which have to be kept alike.
std::unique_ptr<Sequential> make_gpt_layers(const ParameterInit& init,
                                            const GptSizes& sizes, int first, int last,
                                            const GptKit& kit = {},
                                            Parameter* table = nullptr);

inline constexpr const char* kGptTable = "transformer.wte.weight";

/// The parameter of that name; null if the module has none.
Parameter* find_parameter(Module& module, const std::string& name);

}  // namespace lockstep
