#include "src/nn/gpt.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/nn/attention.hpp"
#include "src/nn/embedding.hpp"
#include "src/nn/layer_norm.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/mlp.hpp"
#include "src/nn/position_embedding.hpp"
#include "src/nn/residual.hpp"
#include "src/nn/rms_norm.hpp"

namespace lockstep {

void require_sizes(const ParameterInit& init, const GptSizes& sizes) {
    require(sizes.layers >= 0 && sizes.block.inner >= 0, [&] {
        return fmt::format(
            "{}: a GPT of {} layers and {} columns within its MLPs; "
            "neither may be negative",
            init.name.empty() ? "gpt" : init.name, sizes.layers, sizes.block.inner);
    });
}

std::unique_ptr<Module> make_norm(const ParameterInit& init, const BlockSizes& sizes) {
    if (sizes.norm == NormKind::rms_norm)
        return std::make_unique<RmsNorm>(init, sizes.hidden);
    return std::make_unique<LayerNorm>(init, sizes.hidden);
}

std::unique_ptr<Sequential> make_block(const ParameterInit& init,
                                       const BlockSizes& sizes) {
    auto attention = std::make_unique<Sequential>();
    attention->add(make_norm(init.child("ln_1"), sizes));
    attention->add(
        make_attention(init.child("attn"), sizes.hidden, sizes.heads, sizes.causal));

    auto mlp = std::make_unique<Sequential>();
    mlp->add(make_norm(init.child("ln_2"), sizes));
    const auto make = sizes.mlp == MlpKind::gelu ? make_mlp : make_swiglu_mlp;
    mlp->add(make(init.child("mlp"), sizes.hidden, sizes.inner_columns()));

    auto block = std::make_unique<Sequential>();
    block->add<Residual>(std::move(attention));
    block->add<Residual>(std::move(mlp));
    return block;
}

std::unique_ptr<Sequential> make_gpt(const ParameterInit& init, const GptSizes& sizes) {
    require_sizes(init, sizes);
    const std::int64_t hidden = sizes.block.hidden;
    const ParameterInit body = init.child("transformer");
    auto gpt = std::make_unique<Sequential>();
    gpt->add<Embedding>(body.child("wte"), sizes.vocabulary, hidden);       // (s, b, h)
    gpt->add<PositionEmbedding>(body.child("wpe"), sizes.context, hidden);  // (s, b, h)
    for (std::int64_t layer = 0; layer < sizes.layers; ++layer)
        gpt->add(make_block(body.child(fmt::format("h.{}", layer)), sizes.block));
    gpt->add(make_norm(body.child("ln_f"), sizes.block));
    gpt->add<Linear>(init.child("lm_head"), hidden, sizes.vocabulary, /*bias=*/false);
    return gpt;
}

}  // namespace lockstep
