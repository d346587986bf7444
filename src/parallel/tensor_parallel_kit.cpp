#include "src/parallel/tensor_parallel_kit.hpp"

#include <algorithm>

#include "src/core/require.hpp"
#include "src/parallel/column_parallel_linear.hpp"
#include "src/parallel/row_parallel_linear.hpp"
#include "src/parallel/vocabulary_parallel.hpp"

namespace lockstep {

namespace {

/// Wraps `make` for a module outside regions: every rank has the whole module.
template <typename Make>
Make replicated(TensorParallel& tp, Make make) {
    return [&tp, make](const ParameterInit& init, const auto&... sizes) {
        std::unique_ptr<Module> made = make(init, sizes...);
        tp.replicate(made->parameters());
        return made;
    };
}

/// Between a wide and a narrow layer each rank has its own columns, or heads.
// lesson: parallel-layers
GptKit with_shared_layers(GptKit kit, TensorParallel& tp) {
    kit.wide = [&tp](const ParameterInit& init, const LinearSizes& sizes) {
        return std::make_unique<ColumnParallelLinear>(
            init, tp, sizes.in, sizes.all_out(),
            ColumnParallelOptions{.bias = sizes.bias, .stacked = sizes.out});
    };
    kit.narrow = [&tp](const ParameterInit& init, const LinearSizes& sizes) {
        return std::make_unique<RowParallelLinear>(init, tp, sizes.in, sizes.all_out(),
                                                   sizes.bias);
    };
    kit.heads = [&tp, heads = kit.heads](const std::string& layer,
                                         const AttentionSizes& sizes) {
        const AttentionSizes all = heads(layer, sizes);
        AttentionSizes own = all;
        own.heads = tp.share(layer, "heads", all.heads);
        own.kv_heads = tp.share(layer, "heads of keys and values", all.key_heads());
        return own;
    };
    return kit;
}
// lesson: end

}  // namespace

GptKit copy_key_heads(GptKit kit, TensorParallel& tp) {
    require(kit.shares_layers,
            "copy_key_heads(): the kit's layers are not sharded; pass it the kit that "
            "tensor_parallel() returns");
    kit.wide = [&tp](const ParameterInit& init, const LinearSizes& sizes) {
        return std::make_unique<ColumnParallelLinear>(
            init, tp, sizes.in, sizes.all_out(),
            ColumnParallelOptions{
                .bias = sizes.bias, .stacked = sizes.out, .shares = sizes.heads});
    };
    kit.heads = [&tp](const std::string& layer, const AttentionSizes& all) {
        AttentionSizes own = all;
        own.heads = tp.share(layer, "heads", all.heads);
        const std::int64_t keys = all.key_heads();
        require(keys % tp.size() == 0 || tp.size() % keys == 0,
                "{}: {} heads of keys and values for {} ranks; one must divide the other",
                layer, keys, tp.size());
        own.kv_heads = std::max<std::int64_t>(keys / tp.size(), 1);
        return own;
    };
    return kit;
}

// lesson: parallel-gpt
GptKit tensor_parallel(GptKit kit, TensorParallel& tp) {
    require(!kit.shares_layers,
            "tensor_parallel(): the kit's layers are sharded already");
    kit.shares_layers = true;
    kit = with_shared_layers(std::move(kit), tp);
    kit.norm = replicated(tp, kit.norm);
    kit.positions = replicated(tp, kit.positions);
    kit.stretch = tp.token_deal();

    kit.table = [&tp](const ParameterInit& init, const GptSizes& sizes,
                      double deviation) {
        return std::make_unique<VocabularyParallelEmbedding>(
            init, tp, sizes.vocabulary, sizes.block.hidden, deviation);
    };
    kit.head = [&tp](const ParameterInit& init, const GptSizes& sizes, Parameter* table) {
        if (table) return std::make_unique<ColumnParallelLinear>(tp, *table);
        return std::make_unique<ColumnParallelLinear>(
            init, tp, sizes.block.hidden, sizes.vocabulary,
            ColumnParallelOptions{.bias = false, .pad = true});
    };
    kit.loss = [&tp](const GptSizes& sizes) {
        return Loss([&tp, vocabulary = sizes.vocabulary](Device&, const Tensor& logits,
                                                         const Tensor& targets,
                                                         double weight, SourceLine at) {
            return vocabulary_parallel_cross_entropy(tp, logits, targets, vocabulary,
                                                     weight, at);
        });
    };
    return kit;
}
// lesson: end

}  // namespace lockstep
