#include "src/nn/gpt.hpp"

#include <cmath>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/nn/attention.hpp"
#include "src/nn/embedding.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/mlp.hpp"
#include "src/nn/norm.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep {

void require_sizes(const ParameterInit& init, const GptSizes& sizes) {
    require(sizes.layers >= 0 && sizes.block.inner >= 0,
            "{}: a GPT of {} layers and {} columns within its MLPs; neither may be "
            "negative",
            init.name.empty() ? "gpt" : init.name, sizes.layers, sizes.block.inner);
}

std::unique_ptr<Module> make_norm(const ParameterInit& init, const BlockSizes& sizes) {
    if (sizes.norm == NormKind::rms_norm)
        return std::make_unique<RmsNorm>(init, sizes.hidden);
    return std::make_unique<LayerNorm>(init, sizes.hidden);
}

std::unique_ptr<Sequential> make_block(const ParameterInit& init, const BlockSizes& sizes,
                                       const SequencePart& part) {
    require(part.tokens.ranks == 1 || part.attention,
            "{}: tokens of {} ranks, but no attention that sees the others'; "
            "context_part() makes one",
            init.name, part.tokens.ranks);
    auto attention = std::make_unique<Sequential>();
    attention->add(make_norm(init.child("ln_1"), sizes));
    attention->add(make_attention(init.child("attn"), sizes.hidden, sizes.attention(),
                                  part.attention));

    auto mlp = std::make_unique<Sequential>();
    mlp->add(make_norm(init.child("ln_2"), sizes));
    const auto make = sizes.mlp == MlpKind::gelu ? make_mlp : make_swiglu_mlp;
    mlp->add(make(init.child("mlp"), sizes.hidden, sizes.inner_columns()));

    auto block = std::make_unique<Sequential>();
    block->add<Residual>(std::move(attention));
    block->add<Residual>(std::move(mlp));
    return block;
}

namespace {

/// Returns the deviation of a table that the head reads too.
double table_deviation(const GptSizes& sizes) {
    return sizes.tied ? 1 / std::sqrt(static_cast<double>(sizes.block.hidden)) : 1;
}

/// The head: over `table`, or with a weight of its own, which where it is tied to a table
/// elsewhere has that one's name and values.
std::unique_ptr<Module> make_head(const ParameterInit& init, const GptSizes& sizes,
                                  Parameter* table) {
    if (sizes.tied && table) return std::make_unique<Linear>(init.device, *table);
    const ParameterInit named =
        sizes.tied ? init.child("transformer.wte") : init.child("lm_head");
    auto head = std::make_unique<Linear>(named, sizes.block.hidden, sizes.vocabulary,
                                         /*bias=*/false);
    if (sizes.tied)
        init.device.random_normal(head->weight().value,
                                  RandomStream(init.seed, head->weight().name()), 0,
                                  table_deviation(sizes));
    return head;
}

}  // namespace

std::unique_ptr<Sequential> make_gpt_layers(const ParameterInit& init,
                                            const GptSizes& sizes, int first, int last,
                                            Parameter* table, const SequencePart& part) {
    require_sizes(init, sizes);
    const int count = sizes.layer_count();
    require(0 <= first && first <= last && last <= count,
            "layers {} to {} of a GPT of {} layers", first, last, count);
    const std::int64_t hidden = sizes.block.hidden;
    const ParameterInit body = init.child("transformer");
    auto layers = std::make_unique<Sequential>();
    for (int layer = first; layer < last; ++layer) {
        if (layer == 0)  // (s, b, h)
            table = &layers
                         ->add<Embedding>(body.child("wte"), sizes.vocabulary, hidden,
                                          table_deviation(sizes))
                         .weight();
        else if (layer == 1)
            layers->add<PositionEmbedding>(body.child("wpe"), sizes.context, hidden,
                                           part.tokens);
        else if (layer < count - 2)
            layers->add(make_block(body.child(fmt::format("h.{}", layer - 2)),
                                   sizes.block, part));
        else if (layer == count - 2)
            layers->add(make_norm(body.child("ln_f"), sizes.block));
        else  // (s, b, V)
            layers->add(make_head(init, sizes, table));
    }
    return layers;
}

std::unique_ptr<Sequential> make_gpt(const ParameterInit& init, const GptSizes& sizes,
                                     const SequencePart& part) {
    return make_gpt_layers(init, sizes, 0, sizes.layer_count(), nullptr, part);
}

Parameter* find_parameter(Module& module, const std::string& name) {
    for (Parameter* parameter : module.parameters())
        if (parameter->name() == name) return parameter;
    return nullptr;
}

}  // namespace lockstep
