#include "ulysses.hpp"

using namespace lockstep;

// Sends to rank i a block with the columns of rank i's heads. The block from rank i has
// rank i's tokens, so all received blocks together are the sequence.
Tensor to_heads(Rank& rank, const Tensor& own_tokens, int parts) {
    Device& device = rank.device();
    const int n = rank.size();
    const Shape& shape = own_tokens.shape();
    const std::int64_t piece = shape[2] / parts / n;
    const Shape blocks{n, shape[0], shape[1], parts * piece};
    const Tensor going = device.empty(blocks, own_tokens.dtype());
    const Tensor coming = device.empty(blocks, own_tokens.dtype());
    for (int to = 0; to < n; ++to)
        for (int part = 0; part < parts; ++part)
            device.copy_columns(going.rows(to, 1), part * piece, own_tokens,
                                (part * n + to) * piece, piece);
    rank.world().all_to_all(coming, going).wait();
    return coming.reshaped({n * shape[0], shape[1], parts * piece});
}

Tensor to_tokens(Rank& rank, const Tensor& own_heads, int parts) {
    Device& device = rank.device();
    const int n = rank.size();
    const Shape& shape = own_heads.shape();
    const std::int64_t tokens = shape[0] / n;
    const std::int64_t piece = shape[2] / parts;
    const Shape blocks{n, tokens, shape[1], shape[2]};
    const Tensor coming = device.empty(blocks, own_heads.dtype());
    rank.world().all_to_all(coming, own_heads.reshaped(blocks)).wait();
    const Tensor own = device.empty({tokens, shape[1], n * shape[2]}, own_heads.dtype());
    for (int from = 0; from < n; ++from)
        for (int part = 0; part < parts; ++part)
            device.copy_columns(own, (part * n + from) * piece, coming.rows(from, 1),
                                part * piece, piece);
    return own;
}

Tensor ulysses_forward(Rank& rank, const Tensor& x, Module& attention, Saved& saved) {
    const Tensor y = attention.forward(to_heads(rank, x, 3), saved);
    return to_tokens(rank, y, 1);
}

Tensor ulysses_backward(Rank& rank, const Tensor& dy, Module& attention, Saved& saved) {
    const Tensor dx = attention.backward_input(to_heads(rank, dy, 1), saved);
    return to_tokens(rank, dx, 3);
}
