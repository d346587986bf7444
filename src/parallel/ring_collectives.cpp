#include "src/parallel/ring_collectives.hpp"

#include "src/comm/chunks.hpp"

namespace lockstep {

namespace {

/// Returns chunk `index` of the buffer; the index wraps around the ring.
Tensor piece(const Tensor& buffer, int parts, int index) {
    const Chunk part = chunk(buffer.elements(), parts, (index % parts + parts) % parts);
    return buffer.slice(part.begin, part.count);
}

}  // namespace

// lesson: ring-reduce-scatter
void ring_reduce_scatter(Device& device, Communicator& ring, const Tensor& buffer) {
    const int n = ring.size();
    const int me = ring.rank();
    const int right = (me + 1) % n;
    const int left = (me + n - 1) % n;
    const Tensor arriving =
        device.empty({(buffer.elements() + n - 1) / n}, buffer.dtype());

    // Chunk c starts at rank c + 1 and collects every rank's part until it reaches
    // rank c.
    for (int step = 0; step < n - 1; ++step) {
        const Tensor going = piece(buffer, n, me - 1 - step);
        const Tensor mine = piece(buffer, n, me - 2 - step);
        const Tensor partial = arriving.rows(0, mine.elements());
        ring.group().send(going, right).recv(partial, left).start().wait();
        device.add(mine, partial);
    }
}
// lesson: end

// lesson: ring-all-gather
void ring_all_gather(Communicator& ring, const Tensor& buffer) {
    const int n = ring.size();
    const int me = ring.rank();
    const int right = (me + 1) % n;
    const int left = (me + n - 1) % n;

    // Each finished chunk travels around the ring until all ranks have it.
    for (int step = 0; step < n - 1; ++step) {
        const Tensor going = piece(buffer, n, me - step);
        const Tensor arriving = piece(buffer, n, me - 1 - step);
        ring.group().send(going, right).recv(arriving, left).start().wait();
    }
}
// lesson: end

// lesson: ring-all-reduce
void ring_all_reduce(Device& device, Communicator& ring, const Tensor& buffer) {
    ring_reduce_scatter(device, ring, buffer);
    ring_all_gather(ring, buffer);
}
// lesson: end

// lesson: recursive-doubling
void recursive_doubling_all_reduce(Device& device, Communicator& group,
                                   const Tensor& buffer) {
    const int n = group.size();
    const int me = group.rank();
    const int pairs = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
    const int surplus = n - pairs;
    const Tensor arriving = device.empty(buffer.shape(), buffer.dtype());

    // Fold: rank `pairs` + i sends its buffer to rank i, then waits for the sum.
    if (me >= pairs) {
        group.send(buffer, me - pairs).wait();
        group.recv(buffer, me - pairs).wait();
        return;
    }
    if (me < surplus) {
        group.recv(arriving, me + pairs).wait();
        device.add(buffer, arriving);
    }
    // Double: after the exchange at distance d, each rank holds the sum
    // over 2d ranks.
    for (int distance = 1; distance < pairs; distance *= 2) {
        const int partner = me ^ distance;
        group.group().send(buffer, partner).recv(arriving, partner).start().wait();
        device.add(buffer, arriving);
    }
    // Unfold.
    if (me < surplus) group.send(buffer, me + pairs).wait();
}
// lesson: end

}  // namespace lockstep
