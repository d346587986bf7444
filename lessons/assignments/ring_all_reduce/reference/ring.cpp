#include "ring.hpp"

#include "src/comm/chunks.hpp"

using namespace lockstep;

namespace {

/// Returns chunk `index` of the buffer, modulo the number of ranks.
Tensor chunk_of(const Tensor& buffer, int ranks, int index) {
    const Chunk part = chunk(buffer.elements(), ranks, index % ranks);
    return buffer.slice(part.begin, part.count);
}

/// Sends `going` to the rank before, and receives `coming` from the next rank.
void exchange(Rank& rank, const Tensor& going, const Tensor& coming) {
    const int n = rank.size();
    const int before = (rank.index() + n - 1) % n;
    const int next = (rank.index() + 1) % n;
    rank.world().group().send(going, before).recv(coming, next).start().wait();
}

}  // namespace

void reduce_scatter(Rank& rank, const Tensor& buffer) {
    const int n = rank.size();
    if (n == 1) return;
    const std::int64_t largest = (buffer.elements() + n - 1) / n;
    const Tensor space = rank.device().empty({largest}, buffer.dtype());
    // Chunk c sets out from rank c - 1, and is whole when it comes home to rank c.
    for (int step = 1; step < n; ++step) {
        const Tensor mine = chunk_of(buffer, n, rank.index() + step + 1);
        const Tensor coming = space.rows(0, mine.elements());
        exchange(rank, chunk_of(buffer, n, rank.index() + step), coming);
        rank.device().add(mine, coming);
    }
}

void all_gather(Rank& rank, const Tensor& buffer) {
    const int n = rank.size();
    for (int step = 0; step + 1 < n; ++step)
        exchange(rank, chunk_of(buffer, n, rank.index() + step),
                 chunk_of(buffer, n, rank.index() + step + 1));
}

void all_reduce(Rank& rank, const Tensor& buffer) {
    reduce_scatter(rank, buffer);
    all_gather(rank, buffer);
}
