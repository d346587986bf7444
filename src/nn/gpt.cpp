#include "src/nn/gpt.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/embedding.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/norm.hpp"
#include "src/nn/part.hpp"

namespace lockstep {

std::int64_t LinearSizes::all_out() const {
    return std::accumulate(out.begin(), out.end(), std::int64_t{0});
}

void require_latent(const ParameterInit& init, const BlockSizes& sizes,
                    const GptKit& kit) {
    require(!kit.shares_layers && sizes.rotary_base > 0 && sizes.causal,
            "{}: latent attention must be causal and have rotary positions, and the kit "
            "must not shard its heads or tokens",
            init.name);
}

namespace {

/// These functions make the parts of the kit for one device, which shards no layer.
std::unique_ptr<Module> make_linear(const ParameterInit& init, const LinearSizes& sizes) {
    return std::make_unique<Linear>(init, sizes.in, sizes.all_out(), sizes.bias);
}

std::unique_ptr<Module> make_kind_of_mlp(const ParameterInit& init,
                                         const BlockSizes& sizes, const GptKit& kit) {
    if (sizes.experts.count > 0) return make_experts(init, sizes, kit);
    if (sizes.mlp == MlpKind::swiglu)
        return make_swiglu_mlp(init, sizes.hidden, sizes.inner_columns(), kit);
    return make_mlp(init, sizes.hidden, sizes.inner_columns(), kit, sizes.gelu,
                    sizes.bias);
}

std::unique_ptr<Module> make_latent(const ParameterInit& init, const BlockSizes& sizes,
                                    const GptKit& kit) {
    require(!kit.core && !kit.places,
            "{}: with latent attention, the kit must not set another core or the places "
            "of tokens",
            init.name);
    require_latent(init, sizes, kit);
    return std::make_unique<LatentAttention>(
        init, sizes.hidden, sizes.heads, sizes.latent, sizes.rotary_base, sizes.epsilon);
}

std::unique_ptr<Module> make_norm(const ParameterInit& init, const BlockSizes& sizes) {
    if (sizes.norm == NormKind::rms_norm)
        return std::make_unique<RmsNorm>(init, sizes.hidden, sizes.epsilon);
    return std::make_unique<LayerNorm>(init, sizes.hidden, sizes.epsilon);
}

std::unique_ptr<Module> make_table(const ParameterInit& init, const GptSizes& sizes,
                                   double deviation) {
    return std::make_unique<Embedding>(init, sizes.vocabulary, sizes.block.hidden,
                                       deviation);
}

std::unique_ptr<Module> make_positions(const ParameterInit& init, const GptSizes& sizes,
                                       const GptKit& kit) {
    return std::make_unique<PositionEmbedding>(init, sizes.context, sizes.block.hidden,
                                               kit.tokens, kit.stretch, kit.places);
}

std::unique_ptr<Module> make_plain_head(const ParameterInit& init, const GptSizes& sizes,
                                        Parameter* table) {
    if (table) return std::make_unique<Linear>(init.device, *table);
    return std::make_unique<Linear>(init, sizes.block.hidden, sizes.vocabulary,
                                    /*bias=*/false);
}

}  // namespace

BlockSizes GptSizes::block_of(std::int64_t layer) const {
    BlockSizes sizes = block;
    if (layer < dense_blocks) sizes.experts = {};
    return sizes;
}

namespace {

/// Returns the number of elements in a block's gate, shared expert and `experts` experts.
std::int64_t numbers_in_experts(const BlockSizes& block, std::int64_t experts) {
    const ExpertSizes& sizes = block.experts;
    return block.hidden *
           (sizes.count +
            block.mlp_matrices() * (experts * block.expert_columns() + sizes.shared));
}

}  // namespace

std::int64_t GptSizes::parameters(std::int64_t experts) const {
    const std::int64_t h = block.hidden;
    const std::int64_t inner = block.inner_columns();
    const std::int64_t kv_columns = block.attention().key_heads() * (h / block.heads);
    const auto linear = [&](std::int64_t in, std::int64_t out) {
        return in * out + (block.bias ? out : 0);
    };
    const std::int64_t attention = block.latent.query_rank > 0
                                       ? latent_parameters(h, block.heads, block.latent)
                                       : linear(h, h + 2 * kv_columns) + linear(h, h);
    const std::int64_t mlp = block.mlp == MlpKind::swiglu
                                 ? 3 * h * inner
                                 : linear(h, inner) + linear(inner, h);
    const std::int64_t norm = block.norm == NormKind::layer_norm ? 2 * h : h;
    const std::int64_t tables =
        vocabulary + (learns_positions() ? context : 0) + (tied ? 0 : vocabulary);
    const std::int64_t dense =
        block.experts.count > 0 ? std::min(layers, dense_blocks) : layers;
    return layers * (attention + 2 * norm) + dense * mlp +
           (layers - dense) * numbers_in_experts(block, experts) + norm + tables * h;
}

GptKit::GptKit()
    : wide(make_linear),
      narrow(make_linear),
      heads([](const std::string&, const AttentionSizes& all) { return all; }),
      latent(make_latent),
      mlp(make_kind_of_mlp),
      norm(make_norm),
      table(make_table),
      positions(make_positions),
      head(make_plain_head),
      loss([](const GptSizes&) { return Loss(cross_entropy_loss); }) {}

namespace {

/// Makes the module between attention's linear layers.
std::unique_ptr<Module> make_core(Device& device, const AttentionSizes& sizes,
                                  const GptKit& kit) {
    auto core = kit.core ? kit.core(device, sizes)
                         : std::make_unique<CoreAttention>(device, sizes);
    if (sizes.rotary_base == 0) return core;
    return std::make_unique<RotaryAttention>(device, sizes, std::move(core), kit.tokens,
                                             kit.places);
}

}  // namespace

// lesson: attention
std::unique_ptr<Sequential> make_attention(const ParameterInit& init, std::int64_t hidden,
                                           const AttentionSizes& sizes,
                                           const GptKit& kit) {
    require_heads(init.name, hidden, sizes);
    const std::int64_t width = hidden / sizes.heads, g = sizes.key_heads();
    const std::int64_t keys = g * width;
    const LinearSizes all{hidden, {hidden, keys, keys}, sizes.bias, {sizes.heads, g, g}};
    AttentionSizes own = kit.heads(init.name, sizes);
    own.width = width;
    auto attention = std::make_unique<Sequential>();
    attention->add(kit.wide(init.child("c_attn"), all));
    attention->add(make_core(init.device, own, kit));
    attention->add(kit.narrow(init.child("c_proj"), {hidden, {hidden}, sizes.bias}));
    return attention;
}
// lesson: end

std::unique_ptr<Module> make_attention_of(const ParameterInit& init,
                                          const BlockSizes& sizes, const GptKit& kit) {
    return sizes.latent.query_rank > 0
               ? kit.latent(init, sizes, kit)
               : make_attention(init, sizes.hidden, sizes.attention(), kit);
}

// lesson: mlp
std::unique_ptr<Sequential> make_mlp(const ParameterInit& init, std::int64_t hidden,
                                     std::int64_t inner, const GptKit& kit, GeluForm gelu,
                                     bool bias) {
    auto mlp = std::make_unique<Sequential>();
    mlp->add(kit.wide(init.child("c_fc"), {hidden, {inner}, bias}));
    mlp->add<Gelu>(init.device, gelu);  // (…, inner)
    mlp->add(kit.narrow(init.child("c_proj"), {inner, {hidden}, bias}));
    return mlp;
}
// lesson: end

std::unique_ptr<Sequential> make_swiglu_mlp(const ParameterInit& init,
                                            std::int64_t hidden, std::int64_t inner,
                                            const GptKit& kit) {
    constexpr bool kBias = false;
    auto mlp = std::make_unique<Sequential>();
    mlp->add(kit.wide(init.child("gate_up_proj"), {hidden, {inner, inner}, kBias}));
    mlp->add<Swiglu>(init.device);  // (…, inner)
    mlp->add(kit.narrow(init.child("down_proj"), {inner, {hidden}, kBias}));
    return mlp;
}

// lesson: experts-kit
std::unique_ptr<Module> make_experts(const ParameterInit& init, const BlockSizes& sizes,
                                     const GptKit& kit) {
    const auto exchange = kit.exchange ? kit.exchange(init) : nullptr;
    const auto deal = exchange ? exchange->of_tensor_group() : std::nullopt;
    require(!kit.shares_layers || deal,
            "{}: linear layers are sharded over a tensor group, but the kit does not say "
            "what this group does with experts; call expert_parallel() with this group",
            init.name);
    const TokenDeal of_experts = deal.value_or(kit.stretch);
    require(of_experts.ranks == kit.stretch.ranks,
            "{}: layers shard a sequence over {} ranks, but experts over {}; give "
            "expert_parallel() and tensor_parallel() the same tensor group",
            init.name, kit.stretch.ranks, of_experts.ranks);
    BlockSizes shared = sizes;
    shared.experts = {};
    shared.inner = sizes.experts.shared;
    shared.bias = false;
    MixtureOfExperts::Sizes own{sizes.experts, sizes.hidden, sizes.mlp == MlpKind::swiglu,
                                sizes.gelu};
    own.experts.inner = sizes.expert_columns();
    return std::make_unique<MixtureOfExperts>(
        init, own, exchange,
        shared.inner > 0 ? kit.mlp(init.child("shared_experts"), shared, kit) : nullptr);
}
// lesson: end

namespace {

/// If tokens are sharded over devices, attention must see the tokens of all devices.
void require_context(const ParameterInit& init, const GptKit& kit) {
    require(kit.tokens.ranks == 1 || kit.core,
            "{}: tokens are sharded over {} ranks, but attention does not see the other "
            "ranks' tokens; use context_parallel()",
            init.name, kit.tokens.ranks);
}

}  // namespace

// lesson: block
std::unique_ptr<Sequential> make_block(const ParameterInit& init, const BlockSizes& sizes,
                                       const GptKit& kit) {
    require_context(init, kit);
    auto attention = std::make_unique<Sequential>();
    attention->add(kit.norm(init.child("ln_1"), sizes));
    attention->add(make_attention_of(init.child("attn"), sizes, kit));

    auto mlp = std::make_unique<Sequential>();
    mlp->add(kit.norm(init.child("ln_2"), sizes));
    mlp->add(kit.mlp(init.child("mlp"), sizes, kit));

    auto block = std::make_unique<Sequential>();
    block->add<Residual>(std::move(attention));
    block->add<Residual>(std::move(mlp));
    return block;
}
// lesson: end

namespace {

/// Throws UsageError if a size that may be 0 is negative.
void require_sizes(const ParameterInit& init, const GptSizes& sizes) {
    const std::string who = init.name.empty() ? "gpt" : init.name;
    const ExpertSizes& experts = sizes.block.experts;
    require(sizes.layers >= 0 && sizes.block.inner >= 0,
            "{}: a GPT of {} layers and {} columns within its MLPs; neither may be "
            "negative",
            who, sizes.layers, sizes.block.inner);
    require(experts.count >= 0 && experts.inner >= 0 && experts.shared >= 0 &&
                sizes.dense_blocks >= 0,
            "{}: {} experts of {} columns, {} in the shared one, and {} blocks without "
            "experts; none may be negative",
            who, experts.count, experts.inner, experts.shared, sizes.dense_blocks);
}

/// Returns the table's initial deviation. It is smaller if the head reads the table, too.
double table_deviation(const GptSizes& sizes) {
    return sizes.tied ? 1 / std::sqrt(static_cast<double>(sizes.block.hidden)) : 1;
}

/// Makes the head with the weight `table` or, if it is null, with its own weight. If a
/// tied head's table is on another device, this weight has the table's name and values.
std::unique_ptr<Module> make_head(const ParameterInit& init, const GptSizes& sizes,
                                  const GptKit& kit, Parameter* table) {
    if (!sizes.tied) return kit.head(init.child("lm_head"), sizes, nullptr);
    auto head = kit.head(init.child("transformer.wte"), sizes, table);
    if (!table)
        start_normal(*head->parameters().front(), init.seed, table_deviation(sizes));
    return head;
}

}  // namespace

// lesson: gpt
std::unique_ptr<Sequential> make_gpt_layers(const ParameterInit& init,
                                            const GptSizes& sizes, int first, int last,
                                            const GptKit& kit, Parameter* table) {
    require_sizes(init, sizes);
    const int count = sizes.layer_count();
    require(0 <= first && first <= last && last <= count,
            "layers {} to {} do not exist in a GPT of {} layers", first, last, count);
    const ParameterInit body = init.child("transformer");
    auto layers = std::make_unique<Sequential>();
    for (int layer = first; layer < last; ++layer) {
        if (layer == 0) {  // (s, b, h)
            auto wte = kit.table(body.child("wte"), sizes, table_deviation(sizes));
            table = wte->parameters().front();
            layers->add(std::move(wte));
        } else if (layer < sizes.first_block()) {
            layers->add(kit.positions(body.child("wpe"), sizes, kit));
        } else if (layer < count - 2) {
            const int block = layer - sizes.first_block();
            layers->add(make_block(body.child(fmt::format("h.{}", block)),
                                   sizes.block_of(block), kit));
        } else if (layer == count - 2) {
            layers->add(kit.norm(body.child("ln_f"), sizes.block));
        } else {  // (s, b, V)
            layers->add(make_head(init, sizes, kit, table));
        }
    }
    return layers;
}
// lesson: end

std::unique_ptr<Sequential> make_gpt(const ParameterInit& init, const GptSizes& sizes,
                                     const GptKit& kit) {
    return make_gpt_layers(init, sizes, 0, sizes.layer_count(), kit);
}

Parameter* find_parameter(Module& module, const std::string& name) {
    for (Parameter* parameter : module.parameters())
        if (parameter->name() == name) return parameter;
    return nullptr;
}

}  // namespace lockstep
