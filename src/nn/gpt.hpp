#pragma once

#include "src/nn/attention.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep {

enum class NormKind { layer_norm, rms_norm };
enum class MlpKind { gelu, swiglu };

/// The sizes of a transformer block; s and b are its input's.
struct BlockSizes {
    std::int64_t hidden = 0;  ///< h
    std::int64_t heads = 0;   ///< a
    std::int64_t inner = 0;   ///< of the MLP; 0: 4 h, whichever MLP it is
    NormKind norm = NormKind::layer_norm;
    MlpKind mlp = MlpKind::gelu;
    bool causal = true;
    std::int64_t kv_heads = 0;  ///< g, of keys and values; 0: a

    AttentionSizes attention() const { return {heads, causal, kv_heads}; }
    std::int64_t inner_columns() const { return inner > 0 ? inner : 4 * hidden; }
};

struct GptSizes {
    std::int64_t vocabulary = 0;  ///< V
    std::int64_t context = 0;     ///< C, the longest sequence
    std::int64_t layers = 0;      ///< L
    BlockSizes block;
    /// The head reads the table of wte (Press & Wolf, 1608.05859): "lm_head.weight" is
    /// not there, and "transformer.wte.weight" gets the gradients of both. It starts with
    /// deviation 1/sqrt(h), as suits the head.
    bool tied = false;

    /// wte, wpe, the blocks, ln_f and lm_head: L + 4.
    int layer_count() const { return static_cast<int>(layers) + 4; }
};

/// Throws UsageError if a size that may be 0 is negative.
void require_sizes(const ParameterInit& init, const GptSizes& sizes);

/// A norm over the last dimension, as the sizes ask.
std::unique_ptr<Module> make_norm(const ParameterInit& init, const BlockSizes& sizes);

/// A pre-norm transformer block (Radford et al. 2019, GPT-2, section 2.3): x (s, b, h)
/// gives y of the same shape.
///
///     x = x + attn(ln_1(x));  y = x + mlp(ln_2(x))
std::unique_ptr<Sequential> make_block(const ParameterInit& init, const BlockSizes& sizes,
                                       const SequencePart& part = {});

/// A GPT: logits of the next token at every position.
///
///     ids (s, b), i32 -> wte + wpe (s, b, h) -> L blocks -> ln_f -> lm_head (s, b, V)
///
/// The sequence comes first, then the batch, as Megatron has it: then a part of the
/// sequence is contiguous. If other devices have tokens of the same sequence, `part` says
/// which are here: all but attention and places looks at one token at a time. Parameters
/// are named as in PyTorch GPTs, and laid out as nn.Linear and nn.Embedding have them:
/// "transformer.wte.weight" (V, h), "transformer.wpe.weight" (C, h), for each layer i
/// "transformer.h.i.ln_1.weight", ".ln_1.bias", ".attn.c_attn.weight" (3 h, h), or fewer
/// rows with fewer heads of keys and values …, "transformer.ln_f.weight",
/// "transformer.ln_f.bias", "lm_head.weight" (V, h), which has no bias. Throws UsageError
/// for sizes that are not positive, or heads that do not divide h.
std::unique_ptr<Sequential> make_gpt(const ParameterInit& init, const GptSizes& sizes,
                                     const SequencePart& part = {});

/// Layers [first, last) of it, for devices that share it out, counted as layer_count()
/// does: (s, b) or (s, b, h) in, (s, b, h) or (s, b, V) out. A tied head whose wte is not
/// among them reads `table`, which is that parameter on this device; where that is null,
/// it has its own, of the same name and first values, which have to be kept alike.
std::unique_ptr<Sequential> make_gpt_layers(const ParameterInit& init,
                                            const GptSizes& sizes, int first, int last,
                                            Parameter* table = nullptr,
                                            const SequencePart& part = {});

inline constexpr const char* kGptTable = "transformer.wte.weight";

/// The parameter of that name; null if the module has none.
Parameter* find_parameter(Module& module, const std::string& name);

}  // namespace lockstep
