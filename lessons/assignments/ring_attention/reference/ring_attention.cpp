#include "ring_attention.hpp"

#include <cmath>
#include <optional>
#include <utility>

#include "src/comm/chunks.hpp"

using namespace lockstep;

namespace {

/// Keys and values of one rank's tokens, or their gradients.
struct Block {
    Tensor keys, values;
};

/// A block that goes to the next rank, and the block that arrives from the rank before.
struct Hop {
    Block going, coming;
    std::optional<Work> work;

    /// Waits, returns the block that has arrived, and frees the block that was sent.
    Block arrived() {
        if (work) work->wait();
        going = {};
        return std::exchange(coming, {});
    }
};

/// One rank's view of the ring.
class Ring {
  public:
    Ring(Rank& rank, const Sequence& sequence) : rank_(rank), sequence_(sequence) {}

    int size() const { return rank_.size(); }

    /// Returns the tokens of the block that is here after `hops` hops.
    Chunk tokens_after(int hops) const {
        const int origin = (rank_.index() - hops + size()) % size();
        return chunk(sequence_.tokens, size(), origin);
    }

    /// Sends the next rank the block that is here after `hops` hops, or its gradients.
    Hop hand_on(const Block& going, int hops) const {
        const int next = (rank_.index() + 1) % size();
        const int before = (rank_.index() + size() - 1) % size();
        const Shape shape = going.keys.shape().with_first(tokens_after(hops + 1).count);
        const DType dtype = going.keys.dtype();
        const Block coming{rank_.device().empty(shape, dtype),
                           rank_.device().empty(shape, dtype)};
        Work work = rank_.world()
                        .group()
                        .send(going.keys, next)
                        .send(going.values, next)
                        .recv(coming.keys, before)
                        .recv(coming.values, before)
                        .start();
        return {going, coming, std::move(work)};
    }

    Heads heads_of(const Tensor& tensor) const {
        return {tensor, sequence_.heads, tensor.shape().columns() / sequence_.heads, 0};
    }

    AttentionHeads heads_of(const Tensor& queries, const Block& block) const {
        return {heads_of(queries), heads_of(block.keys), heads_of(block.values)};
    }

    /// Returns options for own queries and the block that is here after `hops` hops.
    AttentionOptions seeing(const Tensor& queries, int hops) const {
        AttentionOptions options;
        options.factor = 1 / std::sqrt(static_cast<double>(heads_of(queries).width));
        options.causal = sequence_.causal;
        options.queries.first = tokens_after(0).begin;
        options.keys.first = tokens_after(hops).begin;
        return options;
    }

  private:
    Rank& rank_;
    const Sequence& sequence_;
};

Tensor zeros_like(Device& device, const Tensor& tensor) {
    return device.zeros(tensor.shape(), tensor.dtype());
}

Block zeros_like(Device& device, const Block& block) {
    return {zeros_like(device, block.keys), zeros_like(device, block.values)};
}

void add(Device& device, const Block& sum, const Block& block) {
    device.add(sum.keys, block.keys);
    device.add(sum.values, block.values);
}

}  // namespace

Attended ring_attention(Rank& rank, const Qkv& own, const Sequence& sequence) {
    const Ring ring(rank, sequence);
    Device& device = rank.device();
    const OnlineAttention state = device.begin_attention(ring.heads_of(own.queries));
    Block here{own.keys, own.values};
    for (int hops = 0; hops < ring.size(); ++hops) {
        const bool last = hops + 1 == ring.size();
        Hop next = last ? Hop{} : ring.hand_on(here, hops);
        device.attend(state, ring.heads_of(own.queries, here),
                      ring.seeing(own.queries, hops));
        here = next.arrived();
    }
    const Tensor log_sum_exp = device.finish_attention(state);
    return {state.y, log_sum_exp};
}

Qkv ring_attention_backward(Rank& rank, const Qkv& own, const Attended& attended,
                            const Tensor& dy, const Sequence& sequence) {
    const Ring ring(rank, sequence);
    Device& device = rank.device();
    const AttentionBackward back{
        dy, attended.log_sum_exp,
        device.head_row_products(ring.heads_of(dy), ring.heads_of(attended.y))};
    const Tensor d_queries = zeros_like(device, own.queries);

    // `home` is this rank's term of its own block's gradients. The other ranks'
    // terms are added when they arrive.
    Block here{own.keys, own.values};
    const Block home = zeros_like(device, here);
    Hop behind;
    for (int hops = 0; hops < ring.size(); ++hops) {
        const bool first = hops == 0, last = hops + 1 == ring.size();
        Hop next = last ? Hop{} : ring.hand_on(here, hops);
        const Block part = first ? home : zeros_like(device, here);
        device.attend_backward(ring.heads_of(d_queries, part),
                               ring.heads_of(own.queries, here), back,
                               ring.seeing(own.queries, hops));
        if (hops > 1) add(device, part, behind.arrived());
        if (!first) behind = ring.hand_on(part, hops);
        here = next.arrived();
    }
    if (ring.size() > 1) add(device, home, behind.arrived());
    return {d_queries, home.keys, home.values};
}
