#include "src/parallel/ulysses_attention.hpp"

#include "src/core/require.hpp"

namespace lockstep {

namespace {

AttentionSizes share_of_heads(const Communicator& group, const AttentionSizes& sizes) {
    const int n = group.size();
    const auto share = [n](const char* kind, std::int64_t heads) {
        require(heads % n == 0,
                "Ulysses attention cannot shard {} heads{} over {} ranks; a multiple of "
                "{} is expected",
                heads, kind, n, n);
        return heads / n;
    };
    return {share("", sizes.heads), sizes.causal,
            share(" of keys and values", sizes.key_heads())};
}

}  // namespace

UlyssesAttention::UlyssesAttention(Device& device, Communicator& group,
                                   const AttentionSizes& sizes, TokenOrder order)
    : ContextAttention(device, group, sizes, order),
      attention_(device, share_of_heads(group, sizes), order, group.size()) {}

UlyssesAttention::Parts UlyssesAttention::parts_of_x(std::int64_t width) const {
    const std::int64_t kv = sizes().key_heads() * width;
    return {sizes().heads * width, kv, kv};
}

UlyssesAttention::Parts UlyssesAttention::parts_of_y(std::int64_t width) const {
    return {sizes().heads * width};
}

// lesson: ulysses-attention
Tensor UlyssesAttention::do_forward(const Tensor& x, Saved& saved) {
    const std::int64_t width = attention_heads(x, sizes()).queries.width;
    const Tensor all_tokens = to_heads(x, parts_of_x(width));
    const Tensor y = attention_.forward(all_tokens, saved.child(0));
    return to_tokens(y, parts_of_y(width));
}

Tensor UlyssesAttention::do_backward_input(const Tensor& dy, Saved& saved) {
    const std::int64_t width = heads_of_result(dy).width;
    const Tensor all_tokens = to_heads(dy, parts_of_y(width));
    const Tensor dx = attention_.backward_input(all_tokens, saved.child(0));
    return to_tokens(dx, parts_of_x(width));
}

// Block i of the sent tensor has the columns of rank i's heads. Block i of the received
// tensor has rank i's tokens, so all blocks together are the sequence.
Tensor UlyssesAttention::to_heads(const Tensor& own_tokens, const Parts& parts) const {
    const int n = group().size();
    const Shape& shape = own_tokens.shape();
    const Shape blocks{n, shape[0], shape[1], shape[2] / n};
    const MemoryScope scope(device(), MemoryCategory::communication);
    const Tensor going = device().empty(blocks, own_tokens.dtype());
    const Tensor coming = device().empty(blocks, own_tokens.dtype());
    std::int64_t first = 0;
    for (const std::int64_t columns : parts) {
        for (int rank = 0; rank < n; ++rank)
            device().copy_columns(going.rows(rank, 1), first / n, own_tokens,
                                  first + rank * columns / n, columns / n);
        first += columns;
    }
    group().all_to_all(coming, going).wait();
    return coming.reshaped({n * shape[0], shape[1], shape[2] / n});
}

Tensor UlyssesAttention::to_tokens(const Tensor& own_heads, const Parts& parts) const {
    const int n = group().size();
    const Shape& shape = own_heads.shape();
    const std::int64_t tokens = shape[0] / n;
    const Shape blocks{n, tokens, shape[1], shape[2]};
    const Tensor coming = device().empty(blocks, own_heads.dtype());
    group().all_to_all(coming, own_heads.reshaped(blocks)).wait();
    const Tensor own =
        device().empty({tokens, shape[1], n * shape[2]}, own_heads.dtype());
    std::int64_t first = 0;
    for (const std::int64_t columns : parts) {
        for (int rank = 0; rank < n; ++rank)
            device().copy_columns(own, first + rank * columns / n, coming.rows(rank, 1),
                                  first / n, columns / n);
        first += columns;
    }
    return own;
}
// lesson: end

}  // namespace lockstep
