#include "src/parallel/exchange_counts.hpp"

#include "src/core/no_count.hpp"
#include "src/core/require.hpp"

namespace lockstep {

std::vector<std::int64_t> exchange_counts(Device& device, Communicator& group,
                                          const std::vector<std::int64_t>& counts,
                                          SourceLine at) {
    const auto all = static_cast<std::int64_t>(counts.size());
    require(all % group.size() == 0, at,
            "exchange_counts: {} counts for {} ranks; as many for each are expected", all,
            group.size());
    HostTensor mine({all}, DType::i32);
    for (std::int64_t i = 0; i < all; ++i) {
        const std::int64_t count = counts[static_cast<std::size_t>(i)];
        require(count >= 0 && count <= INT32_MAX, at,
                "exchange_counts: counts[{}] is {}; from 0 to {} is expected{}", i, count,
                INT32_MAX, hint_of_no_count(count));
        mine.set(i, static_cast<double>(count));
    }

    const MemoryScope scope(device, MemoryCategory::workspace);
    const Tensor input = device.upload(mine, at);
    const Tensor output = device.empty({all}, DType::i32, at);
    group.all_to_all(output, input, at).wait(at);
    const HostTensor theirs = device.download(output, at);

    const std::int64_t block = all / group.size();
    std::vector<std::int64_t> received(counts.size());
    for (std::int64_t i = 0; i < all; ++i) {
        const std::int64_t own = group.rank() * block + i % block;
        received[static_cast<std::size_t>(i)] =
            static_cast<std::int64_t>(device.has_numbers() ? theirs.at(i) : mine.at(own));
    }
    return received;
}

}  // namespace lockstep
