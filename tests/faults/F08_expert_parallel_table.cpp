// F08: expert parallelism. Each rank reads its receive counts from its row of the table
// of tokens, but should read them from its column.
//
// finds: F08
// check: cheap
// ranks: 4, 256
// parties: 0 | 1

#include <numeric>

#include "src/comm/rank.hpp"

/// Returns how many tokens rank `from` sends to the experts of rank `to`.
std::int64_t tokens(int from, int to) {
    return (from * 3 + to) % 4;
}

void program(Rank& rank) {
    constexpr std::int64_t kWidth = 4;
    const int me = rank.index();
    std::vector<std::int64_t> sent;
    std::vector<std::int64_t> received;
    for (int other = 0; other < rank.size(); ++other) {
        sent.push_back(tokens(me, other));
        received.push_back(tokens(me, other));  // twin: received.push_back(tokens(other, me));
    }
    const auto rows_of = [&](const std::vector<std::int64_t>& counts) {
        const std::int64_t rows = std::accumulate(counts.begin(), counts.end(), 0);
        return rank.device().zeros({rows, kWidth}, DType::f32);
    };
    const Tensor mine = rows_of(sent);
    const Tensor routed = rows_of(received);
    rank.world().all_to_all_v(routed, received, mine, sent).wait();  // line: there
    const Tensor results = rank.device().gelu(routed);
    rank.world().all_to_all_v(mine, sent, results, received).wait();
}
