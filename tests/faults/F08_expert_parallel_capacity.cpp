// F08: expert parallelism. The ranks exchange their counts. After that, one rank drops
// tokens beyond an expert's capacity.
//
// finds: F08
// check: cheap
// ranks: 4, 256
// parties: 1 | 0

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    [[maybe_unused]] constexpr std::int64_t kCapacity = 2;
    Device& device = rank.device();
    const auto n = static_cast<std::size_t>(rank.size());
    // Every rank has 1 token for each other, but rank 1 has 3 for the first expert.
    std::vector<std::int64_t> sent(n, 1);
    if (rank.index() == 1) sent[0] = 3;

    // How many come from each rank: the counts, exchanged.
    HostTensor counts({rank.size()}, DType::i32);
    for (std::size_t i = 0; i < n; ++i)
        counts.set(static_cast<std::int64_t>(i), static_cast<double>(sent[i]));
    const Tensor theirs = device.empty({rank.size()}, DType::i32);
    rank.world().all_to_all(theirs, device.upload(counts)).wait();
    const HostTensor exchanged = device.download(theirs);
    std::vector<std::int64_t> received;
    for (std::size_t i = 0; i < n; ++i)
        received.push_back(
            static_cast<std::int64_t>(exchanged.at(static_cast<std::int64_t>(i))));

    if (sent[0] > kCapacity) sent[0] = kCapacity;  // twin:
    std::int64_t outgoing = 0;
    std::int64_t incoming = 0;
    for (std::size_t i = 0; i < n; ++i) {
        outgoing += sent[i];
        incoming += received[i];
    }
    const Tensor tokens = device.zeros({outgoing, 8}, DType::f32);
    const Tensor routed = device.zeros({incoming, 8}, DType::f32);
    rank.world().all_to_all_v(routed, received, tokens, sent).wait();  // line: there
}
