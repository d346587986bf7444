#include "src/parallel/tensor_parallel_block.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/attention.hpp"
#include "src/nn/embedding.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/column_parallel_linear.hpp"
#include "src/parallel/row_parallel_linear.hpp"
#include "src/parallel/vocabulary_parallel.hpp"

namespace lockstep {

// lesson: parallel-attention
std::unique_ptr<Sequential> make_parallel_attention(const ParameterInit& init,
                                                    TensorParallel& tp,
                                                    std::int64_t hidden,
                                                    std::int64_t heads, bool causal) {
    require_heads(init.name, hidden, {heads, causal});
    const std::int64_t own_heads = tp.share(init.name, "heads", heads);
    auto attention = std::make_unique<Sequential>();
    attention->add<ColumnParallelLinear>(init.child("c_attn"), tp, hidden, 3 * hidden,
                                         ColumnParallelOptions{.stacked = 3});
    attention->add<CoreAttention>(init.device, AttentionSizes{own_heads, causal});
    attention->add<RowParallelLinear>(init.child("c_proj"), tp, hidden, hidden);
    return attention;
}
// lesson: end

// lesson: parallel-mlp
std::unique_ptr<Sequential> make_parallel_mlp(const ParameterInit& init,
                                              TensorParallel& tp, std::int64_t hidden,
                                              std::int64_t inner) {
    auto mlp = std::make_unique<Sequential>();
    mlp->add<ColumnParallelLinear>(init.child("c_fc"), tp, hidden, inner);
    mlp->add<Gelu>(init.device);
    mlp->add<RowParallelLinear>(init.child("c_proj"), tp, inner, hidden);
    return mlp;
}
// lesson: end

std::unique_ptr<Sequential> make_parallel_swiglu_mlp(const ParameterInit& init,
                                                     TensorParallel& tp,
                                                     std::int64_t hidden,
                                                     std::int64_t inner) {
    auto mlp = std::make_unique<Sequential>();
    mlp->add<ColumnParallelLinear>(init.child("gate_up_proj"), tp, hidden, 2 * inner,
                                   ColumnParallelOptions{.bias = false, .stacked = 2});
    mlp->add<Swiglu>(init.device);
    mlp->add<RowParallelLinear>(init.child("down_proj"), tp, inner, hidden,
                                /*bias=*/false);
    return mlp;
}

namespace {

/// c_attn is cut as three layers of equal size.
void require_equal_heads(const ParameterInit& init, const BlockSizes& sizes) {
    const std::int64_t keys = sizes.attention().key_heads();
    require(keys == sizes.heads,
            "{}: {} heads of keys and values for {} of queries; where "
            "weights are shared out, as many are expected",
            init.name, keys, sizes.heads);
}

/// A norm stands outside regions.
std::unique_ptr<Module> replicated_norm(const ParameterInit& init, TensorParallel& tp,
                                        const BlockSizes& sizes) {
    std::unique_ptr<Module> norm = make_norm(init, sizes);
    tp.replicate(norm->parameters());
    return norm;
}

}  // namespace

// lesson: parallel-block
std::unique_ptr<Sequential> make_parallel_block(const ParameterInit& init,
                                                TensorParallel& tp,
                                                const BlockSizes& sizes) {
    require_equal_heads(init, sizes);
    auto attention = std::make_unique<Sequential>();
    attention->add(replicated_norm(init.child("ln_1"), tp, sizes));
    attention->add(make_parallel_attention(init.child("attn"), tp, sizes.hidden,
                                           sizes.heads, sizes.causal));

    auto mlp = std::make_unique<Sequential>();
    mlp->add(replicated_norm(init.child("ln_2"), tp, sizes));
    const auto make =
        sizes.mlp == MlpKind::gelu ? make_parallel_mlp : make_parallel_swiglu_mlp;
    mlp->add(make(init.child("mlp"), tp, sizes.hidden, sizes.inner_columns()));

    auto block = std::make_unique<Sequential>();
    block->add<Residual>(std::move(attention));
    block->add<Residual>(std::move(mlp));
    return block;
}
// lesson: end

// lesson: parallel-gpt
std::unique_ptr<Sequential> make_parallel_gpt(const ParameterInit& init,
                                              TensorParallel& tp, const GptSizes& sizes) {
    require_sizes(init, sizes);
    require(!sizes.tied,
            "a GPT of shared-out weights has no tied head; tied is "
            "expected to be false");
    const std::int64_t hidden = sizes.block.hidden;
    const ParameterInit body = init.child("transformer");
    auto gpt = std::make_unique<Sequential>();
    gpt->add<VocabularyParallelEmbedding>(body.child("wte"), tp, sizes.vocabulary,
                                          hidden);
    auto& places = gpt->add<PositionEmbedding>(body.child("wpe"), sizes.context, hidden,
                                               tp.token_deal());
    tp.replicate(places.weight());
    for (std::int64_t layer = 0; layer < sizes.layers; ++layer)
        gpt->add(
            make_parallel_block(body.child(fmt::format("h.{}", layer)), tp, sizes.block));
    gpt->add(replicated_norm(body.child("ln_f"), tp, sizes.block));
    gpt->add<ColumnParallelLinear>(init.child("lm_head"), tp, hidden, sizes.vocabulary,
                                   ColumnParallelOptions{.bias = false, .pad = true});
    return gpt;
}
// lesson: end

}  // namespace lockstep
