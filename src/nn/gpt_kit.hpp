#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/nn/attention.hpp"
#include "src/nn/latent_attention.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/mixture_of_experts.hpp"
#include "src/nn/token_deal.hpp"

namespace lockstep {

enum class NormKind { layer_norm, rms_norm };
enum class MlpKind { gelu, swiglu };

/// The sizes of a transformer block. s and b are the sizes of its input.
struct BlockSizes {
    std::int64_t hidden = 0;  ///< h
    std::int64_t heads = 0;   ///< a
    std::int64_t inner = 0;   ///< inner columns of the MLP; 0: 4 h for any kind of MLP
    NormKind norm = NormKind::layer_norm;
    MlpKind mlp = MlpKind::gelu;
    bool causal = true;
    std::int64_t kv_heads = 0;  ///< g, heads of keys and values; 0: g = a
    /// The base of rotary positions (Su et al. 2021, 2104.09864), such as 10,000. If it
    /// is 0, a GPT learns a vector for each position instead.
    double rotary_base = 0;
    bool bias = true;  ///< linear layers have biases, except in the SwiGLU MLP
    GeluForm gelu = GeluForm::exact;
    double epsilon = 1e-5;  ///< of norms
    /// If query_rank is not 0, the block has latent attention, causal and without biases,
    /// instead of plain attention.
    LatentSizes latent{};
    /// If count is not 0, the block has a gate and experts instead of one MLP. Each
    /// expert is an MLP of the kind `mlp`.
    ExpertSizes experts{};

    AttentionSizes attention() const {
        return {heads, causal, kv_heads, rotary_base, bias};
    }
    std::int64_t inner_columns() const { return inner > 0 ? inner : 4 * hidden; }
    std::int64_t expert_columns() const {
        return experts.inner > 0 ? experts.inner : inner_columns();
    }
    /// The number of weight matrices of an MLP; SwiGLU has one more, the gate.
    std::int64_t mlp_matrices() const { return mlp == MlpKind::swiglu ? 3 : 2; }
};

struct GptSizes {
    std::int64_t vocabulary = 0;  ///< V
    std::int64_t context = 0;     ///< C, the longest sequence
    std::int64_t layers = 0;      ///< L
    BlockSizes block;
    /// The head reads the table of wte (Press & Wolf, 1608.05859): there is no
    /// "lm_head.weight", and "transformer.wte.weight" gets the gradients of both layers.
    /// The table then starts with deviation 1/sqrt(h), which suits the head.
    bool tied = false;
    /// The number of blocks at the start that have a plain MLP instead of experts.
    std::int64_t dense_blocks = 0;

    /// Returns the sizes of block `layer`.
    BlockSizes block_of(std::int64_t layer) const;
    bool learns_positions() const { return block.rotary_base == 0; }
    /// The number of layers before the blocks: wte, and wpe if positions are learnt.
    int first_block() const { return learns_positions() ? 2 : 1; }
    /// The number of all layers, with ln_f and lm_head: L + 4, or L + 3 without wpe.
    int layer_count() const { return first_block() + static_cast<int>(layers) + 2; }
    /// Returns the number of elements in all parameters; with the defaults it is
    /// L (12 h + 13) h + (2 V + C + 2) h.
    std::int64_t parameters() const { return parameters(block.experts.count); }
    /// Returns how many of these elements one token uses: of a block's experts, only the
    /// chosen experts count.
    std::int64_t active_parameters() const {
        return parameters(block.experts.gate.chosen);
    }

  private:
    /// Returns the number of elements if each block has `experts` experts.
    std::int64_t parameters(std::int64_t experts) const;
};

/// The columns that a linear layer reads and makes. Several layers may read the same x,
/// such as the layers of queries, keys and values. They share one weight, (sum of out,
/// in): the first layer's rows, then the second layer's rows, and so on.
struct LinearSizes {
    std::int64_t in = 0;
    std::vector<std::int64_t> out;
    bool bias = true;
    /// The number of heads in each layer's columns; empty if there are none.
    std::vector<std::int64_t> heads{};

    std::int64_t all_out() const;
};

/// Says how each part of a GPT is made; the default makes the parts for one device. A
/// strategy is a function that takes a kit and replaces some of its parts. So strategies
/// can be combined in any order:
///
///     GptKit kit = tensor_parallel({}, tp);
///     kit = context_parallel(kit, mesh["cp"], ContextMethod::ring_attention);
///     auto gpt = make_gpt(init, sizes, kit);
///
/// The objects that a kit refers to must outlive the modules made with it.
struct GptKit {
    template <typename... Sizes>
    using Make = std::function<std::unique_ptr<Module>(const ParameterInit&, Sizes...)>;

    GptKit();

    /// `wide` maps h columns to the columns inside attention or the MLP; `narrow` maps
    /// them back. If devices shard a layer, each device has its own heads or columns
    /// between `wide` and `narrow`.
    Make<const LinearSizes&> wide;
    Make<const LinearSizes&> narrow;
    /// Returns how many of a layer's heads this device has. Errors name the layer.
    std::function<AttentionSizes(const std::string& layer, const AttentionSizes&)> heads;
    /// Makes the module between attention's linear layers. If empty: a CoreAttention.
    MakeAttention core;
    /// Makes latent attention, for blocks that have it.
    Make<const BlockSizes&, const GptKit&> latent;
    /// Makes the MLP from this kit's linear layers.
    Make<const BlockSizes&, const GptKit&> mlp;
    /// Says how ranks shard the experts that `mlp` makes for a block. If it is empty,
    /// experts are not sharded.
    std::function<std::shared_ptr<ExpertExchange>(const ParameterInit&)> exchange;
    Make<const BlockSizes&> norm;

    /// Makes the token table, with this initial deviation. Its weight is its only
    /// parameter.
    Make<const GptSizes&, double> table;
    Make<const GptSizes&, const GptKit&> positions;
    /// Makes the head, which maps (…, h) to logits. If a table is given, the head uses
    /// the table's weight (tied); else the head's only parameter is its own weight.
    Make<const GptSizes&, Parameter*> head;
    /// Makes the loss for the head's logits.
    std::function<Loss(const GptSizes&)> loss;

    /// True if the linear layers are sharded over several devices.
    bool shares_layers = false;
    /// Says which tokens of each sequence this device has. The core of context_parallel()
    /// also sees the other devices' tokens; a core that is set later does not.
    TokenDeal tokens;
    /// Devices that shard the linear layers may shard `tokens` once more. Then a device
    /// has only this stretch of `tokens` outside the linear layers.
    TokenDeal stretch;
    /// A program may feed sequences piece by piece, or tokens of several sequences
    /// together. It then puts the position of each row of x here before each pass.
    std::shared_ptr<RowPlaces> places;
};

}  // namespace lockstep
