#include "src/parallel/context_attention.hpp"

namespace lockstep {

ContextAttention::ContextAttention(Device& device, Communicator& group,
                                   const AttentionSizes& sizes, TokenOrder order)
    : device_(device),
      group_(group),
      ring_(device, group),
      sizes_(sizes),
      deal_{order, group.size(), group.rank()} {
    require_heads("attention", sizes);
}

AttentionOptions ContextAttention::seeing_rank(const Heads& queries, int rank) const {
    AttentionOptions options = seeing_all(queries);
    options.keys = options.keys.of_rank(rank);
    return options;
}

AttentionOptions ContextAttention::seeing_all(const Heads& queries) const {
    const std::int64_t share = queries.rows();
    return {score_factor(queries.width), sizes_.causal, deal_.own(share),
            deal_.all(share)};
}

Tensor ContextAttention::keys_and_values(const Tensor& x) const {
    const Heads keys = attention_heads(x, sizes_).keys;
    const std::int64_t columns = 2 * keys.heads * keys.width;
    const MemoryScope scope(device_, MemoryCategory::communication);
    const Tensor block = device_.empty(x.shape().with_last(columns), x.dtype());
    device_.copy_columns(block, 0, x, keys.first, columns);
    return block;
}

void ContextAttention::put_keys_and_values(const Tensor& dx, const Tensor& block) const {
    const std::int64_t first = attention_heads(dx, sizes_).keys.first;
    device_.copy_columns(dx, first, block, 0, block.shape().columns());
}

Tensor ContextAttention::zero_block(const Tensor& block) const {
    const MemoryScope scope(device_, MemoryCategory::communication);
    return device_.zeros(block.shape(), block.dtype());
}

AttentionHeads ContextAttention::with_block(const Heads& queries,
                                            const Tensor& block) const {
    const std::int64_t g = sizes_.key_heads(), width = queries.width;
    return {queries, {block, g, width, 0}, {block, g, width, g * width}};
}

Heads ContextAttention::heads_of_result(const Tensor& y) const {
    return {y, sizes_.heads, y.shape().columns() / sizes_.heads, 0};
}

}  // namespace lockstep
