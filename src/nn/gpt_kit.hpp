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

/// The sizes of a transformer block; s and b are its input's.
struct BlockSizes {
    std::int64_t hidden = 0;  ///< h
    std::int64_t heads = 0;   ///< a
    std::int64_t inner = 0;   ///< of the MLP; 0: 4 h, whichever MLP it is
    NormKind norm = NormKind::layer_norm;
    MlpKind mlp = MlpKind::gelu;
    bool causal = true;
    std::int64_t kv_heads = 0;  ///< g, of keys and values; 0: a
    /// The base of rotary positions (Su et al. 2021, 2104.09864), 10,000 say; 0: a GPT
    /// learns a vector for each position instead.
    double rotary_base = 0;
    bool bias = true;  ///< of linear layers; the SwiGLU MLP has none
    GeluForm gelu = GeluForm::exact;
    double epsilon = 1e-5;  ///< of norms
    /// Latent attention in the place of plain one, causal and without biases; with a
    /// query_rank of 0 there is none.
    LatentSizes latent{};
    /// A gate and experts in the place of the MLP, each like it; with E = 0 there are
    /// none.
    ExpertSizes experts{};

    AttentionSizes attention() const {
        return {heads, causal, kv_heads, rotary_base, bias};
    }
    std::int64_t inner_columns() const { return inner > 0 ? inner : 4 * hidden; }
    std::int64_t expert_columns() const {
        return experts.inner > 0 ? experts.inner : inner_columns();
    }
    /// An MLP's: SwiGLU has a gate beside the first one.
    std::int64_t mlp_matrices() const { return mlp == MlpKind::swiglu ? 3 : 2; }
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
    /// So many blocks, the first ones, have a plain MLP in the place of experts.
    std::int64_t dense_blocks = 0;

    /// The sizes of one of the blocks.
    BlockSizes block_of(std::int64_t layer) const;
    bool learns_positions() const { return block.rotary_base == 0; }
    /// wte, and wpe if positions are learnt, come before the blocks.
    int first_block() const { return learns_positions() ? 2 : 1; }
    /// These, the blocks, ln_f and lm_head: L + 4, or L + 3.
    int layer_count() const { return first_block() + static_cast<int>(layers) + 2; }
    /// Returns how many numbers all parameters hold: with the defaults
    /// L (12 h + 13) h + (2 V + C + 2) h.
    std::int64_t parameters() const { return parameters(block.experts.count); }
    /// Returns how many of them a token meets: of a block's experts, those that it
    /// chooses.
    std::int64_t active_parameters() const {
        return parameters(block.experts.gate.chosen);
    }

  private:
    /// Those of so many experts a block.
    std::int64_t parameters(std::int64_t experts) const;
};

/// The columns that a linear layer reads, and makes: several layers side by side read the
/// same x, as those of queries, keys and values do. They have one weight, (all of out,
/// in), whose rows are the first layer's, then the second's …
struct LinearSizes {
    std::int64_t in = 0;
    std::vector<std::int64_t> out;
    bool bias = true;
    /// The heads that the columns of each belong to; none if they are not heads'.
    std::vector<std::int64_t> heads{};

    std::int64_t all_out() const;
};

/// Says how each part of a GPT is made; by itself, as one device makes them. A strategy
/// is a function from kit to kit, which replaces the parts that it is about. So
/// strategies nest, in any order:
///
///     GptKit kit = tensor_parallel({}, tp);
///     kit = context_parallel(kit, mesh["cp"], ContextMethod::ring_attention);
///     auto gpt = make_gpt(init, sizes, kit);
///
/// The things that it refers to must stay as long as the modules made with it.
struct GptKit {
    template <typename... Sizes>
    using Make = std::function<std::unique_ptr<Module>(const ParameterInit&, Sizes...)>;

    GptKit();

    /// From h columns to those within attention or the MLP, and back. Devices that share
    /// out a layer have heads, or columns, of their own between the two.
    Make<const LinearSizes&> wide;
    Make<const LinearSizes&> narrow;
    /// Returns the heads that this device has of a layer's, which is named for errors.
    std::function<AttentionSizes(const std::string& layer, const AttentionSizes&)> heads;
    /// Makes what stands between attention's linear layers; CoreAttention if it is empty.
    MakeAttention core;
    /// Latent attention, of blocks that have it.
    Make<const BlockSizes&, const GptKit&> latent;
    /// The MLP, of this kit's linear layers.
    Make<const BlockSizes&, const GptKit&> mlp;
    /// Says how ranks share out the experts of a block, which `mlp` makes if there are
    /// any; if it is empty, they do not.
    std::function<std::shared_ptr<ExpertExchange>(const ParameterInit&)> exchange;
    Make<const BlockSizes&> norm;

    /// The table of tokens, of that deviation. Its weight is its only parameter.
    Make<const GptSizes&, double> table;
    Make<const GptSizes&, const GptKit&> positions;
    /// The head, (…, h) to logits: over the table's weight if one is given, which then is
    /// tied to it, else with a weight of its own, its only parameter.
    Make<const GptSizes&, Parameter*> head;
    /// The loss of the head's logits.
    std::function<Loss(const GptSizes&)> loss;

    /// The linear layers are shared out to several devices.
    bool shares_layers = false;
    /// Says which tokens of each sequence this device has in attention, which sees those
    /// of other devices, too. A core that is set later does not.
    TokenDeal tokens;
    /// Devices that share out the linear layers may deal these tokens once more: outside
    /// of the layers, a device then has this stretch of them.
    TokenDeal stretch;
    /// Programs that feed sequences piece by piece, or tokens of several sequences
    /// together, put the position of each row of x there before each pass.
    std::shared_ptr<RowPlaces> places;
};

}  // namespace lockstep
