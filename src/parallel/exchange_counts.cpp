#include "src/parallel/exchange_counts.hpp"

#include "src/core/no_count.hpp"
#include "src/core/require.hpp"

namespace lockstep {

namespace {

using Counts = std::vector<std::int64_t>;

Tensor uploaded(Device& device, const char* who, const Counts& counts, SourceLine at) {
    HostTensor mine({static_cast<std::int64_t>(counts.size())}, DType::i32);
    for (std::size_t i = 0; i < counts.size(); ++i) {
        require(counts[i] >= 0 && counts[i] <= INT32_MAX, at,
                "{}: counts[{}] is {}; from 0 to {} is expected{}", who, i, counts[i],
                INT32_MAX, hint_of_no_count(counts[i]));
        mine.set(static_cast<std::int64_t>(i), static_cast<double>(counts[i]));
    }
    return device.upload(mine, at);
}

/// Waits for the counts and returns them. In a run of shapes only, each is kNoCount.
Counts downloaded(Device& device, const Tensor& counts, SourceLine at) {
    const HostTensor values = device.download(counts, at);
    const auto numbers = values.values<std::int32_t>();
    return {numbers.begin(), numbers.end()};
}

}  // namespace

Counts exchange_counts(Device& device, Communicator& group, const Counts& counts,
                       SourceLine at) {
    const auto all = static_cast<std::int64_t>(counts.size());
    require(all % group.size() == 0, at,
            "exchange_counts: {} counts for {} ranks; a multiple of {} is expected", all,
            group.size(), group.size());
    const MemoryScope scope(device, MemoryCategory::workspace);
    const Tensor input = uploaded(device, "exchange_counts", counts, at);
    const Tensor output = device.empty({all}, DType::i32, at);
    group.all_to_all(output, input, at).wait(at);
    Counts theirs = downloaded(device, output, at);
    if (device.has_numbers()) return theirs;

    const std::int64_t block = all / group.size();
    Counts received(counts.size());
    for (std::int64_t i = 0; i < all; ++i)
        received[static_cast<std::size_t>(i)] =
            counts[static_cast<std::size_t>(group.rank() * block + i % block)];
    return received;
}

std::vector<Counts> gather_counts(Device& device, Communicator& ranks,
                                  const Counts& counts, SourceLine at) {
    const MemoryScope scope(device, MemoryCategory::workspace);
    const Tensor input = uploaded(device, "gather_counts", counts, at);
    const Tensor output = device.empty({ranks.size() * input.elements()}, DType::i32, at);
    ranks.all_gather(output, input, at).wait(at);
    const Counts all = downloaded(device, output, at);
    std::vector<Counts> of_ranks(static_cast<std::size_t>(ranks.size()), counts);
    for (std::size_t i = 0; device.has_numbers() && i < all.size(); ++i)
        of_ranks[i / counts.size()][i % counts.size()] = all[i];
    return of_ranks;
}

Counts add_up_counts(Device& device, Communicator& ranks, const Counts& counts,
                     SourceLine at) {
    const MemoryScope scope(device, MemoryCategory::workspace);
    const Tensor sums = uploaded(device, "add_up_counts", counts, at);
    ranks.all_reduce(sums, Reduction::sum, at).wait(at);
    const Counts all = downloaded(device, sums, at);
    return device.has_numbers() ? all : counts;
}

}  // namespace lockstep
