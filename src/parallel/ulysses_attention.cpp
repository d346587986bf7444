#include "src/parallel/ulysses_attention.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

std::int64_t share_of_heads(const Communicator& group, std::int64_t heads) {
    require(heads > 0 && heads % group.size() == 0, [&] {
        return fmt::format(
            "Ulysses attention of {} heads over {} ranks, which share the "
            "heads out: a multiple of {} is expected",
            heads, group.size(), group.size());
    });
    return heads / group.size();
}

}  // namespace

UlyssesAttention::UlyssesAttention(Device& device, Communicator& group,
                                   std::int64_t heads, bool causal)
    : device_(device),
      group_(group),
      attention_(device, share_of_heads(group, heads), causal) {}

// lesson: ulysses-attention
Tensor UlyssesAttention::do_forward(const Tensor& x, Saved& saved) {
    const Tensor all_tokens = to_heads(x, /*parts=*/3);
    const Tensor y = attention_.forward(all_tokens, saved.child(0));
    return to_tokens(y, /*parts=*/1);
}

Tensor UlyssesAttention::do_backward_input(const Tensor& dy, Saved& saved) {
    const Tensor all_tokens = to_heads(dy, /*parts=*/1);
    const Tensor dx = attention_.backward_input(all_tokens, saved.child(0));
    return to_tokens(dx, /*parts=*/3);
}

// Block i of what is sent holds the columns of rank i's heads; block i of
// what comes holds rank i's tokens, so that all blocks together are the
// sequence.
Tensor UlyssesAttention::to_heads(const Tensor& own_tokens,
                                  int parts) const {
    const int n = group_.size();
    const Shape& shape = own_tokens.shape();
    require(shape.dimensions() == 3 && shape[2] % (n * parts) == 0, [&] {
        return fmt::format(
            "Ulysses attention got a tensor of shape {}; (tokens, batch, "
            "columns) is expected, whose columns {} ranks can share out",
            shape.text(), n);
    });
    const std::int64_t width = shape[2] / n / parts;
    const Shape blocks{n, shape[0], shape[1], parts * width};
    const Tensor going = device_.empty(blocks, own_tokens.dtype());
    const Tensor coming = device_.empty(blocks, own_tokens.dtype());
    for (int rank = 0; rank < n; ++rank)
        for (int part = 0; part < parts; ++part)
            device_.copy_columns(going.rows(rank, 1), part * width,
                                 own_tokens, (part * n + rank) * width,
                                 width);
    group_.all_to_all(coming, going).wait();
    return coming.reshaped({n * shape[0], shape[1], parts * width});
}

Tensor UlyssesAttention::to_tokens(const Tensor& own_heads,
                                   int parts) const {
    const int n = group_.size();
    const Shape& shape = own_heads.shape();
    const std::int64_t tokens = shape[0] / n;
    const std::int64_t width = shape[2] / parts;
    const Shape blocks{n, tokens, shape[1], shape[2]};
    const Tensor coming = device_.empty(blocks, own_heads.dtype());
    group_.all_to_all(coming, own_heads.reshaped(blocks)).wait();
    const Tensor own =
        device_.empty({tokens, shape[1], n * shape[2]}, own_heads.dtype());
    for (int rank = 0; rank < n; ++rank)
        for (int part = 0; part < parts; ++part)
            device_.copy_columns(own, (part * n + rank) * width,
                                 coming.rows(rank, 1), part * width, width);
    return own;
}
// lesson: end

}  // namespace lockstep
