#include "src/nn/routing.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/core/require.hpp"

namespace lockstep {

using Counts = std::vector<std::int64_t>;

std::int64_t total(const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

Counts dealt_by_load(std::int64_t copies, std::int64_t experts,
                     const std::vector<double>& load) {
    const auto n = static_cast<std::size_t>(experts);
    std::vector<double> shares = load;
    if (shares.empty()) shares.assign(n, 1);
    const double whole = std::accumulate(shares.begin(), shares.end(), 0.0);
    require(shares.size() == n && whole > 0 && std::isfinite(whole) &&
                std::ranges::all_of(shares, [](double share) { return share >= 0; }),
            "the load has {} numbers with the sum {}; one number for each of {} experts "
            "is expected, none negative and not all 0",
            shares.size(), whole, experts);
    Counts counts(n);
    std::vector<std::size_t> by_loss(n);
    std::iota(by_loss.begin(), by_loss.end(), std::size_t{0});
    std::vector<double> lost(n);
    for (std::size_t e = 0; e < n; ++e) {
        const double exact = static_cast<double>(copies) * shares[e] / whole;
        counts[e] = static_cast<std::int64_t>(exact);
        lost[e] = exact - static_cast<double>(counts[e]);
    }
    std::ranges::stable_sort(by_loss, std::greater<>(),
                             [&](std::size_t e) { return lost[e]; });
    const std::int64_t left = copies - total(counts);
    for (std::int64_t i = 0; i < left; ++i)
        ++counts[by_loss[static_cast<std::size_t>(i) % n]];
    return counts;
}

Routing route(Device& device, const Tensor& ids, std::int64_t experts,
              const RoutingOptions& options, SourceLine at) {
    require(experts > 0, at, "route: {} experts; one is expected at least", experts);
    Routing routing;
    routing.order = device.empty({ids.elements()}, DType::i32, at);
    routing.rows = device.empty({ids.elements()}, DType::i32, at);
    HostTensor counts;
    {
        const MemoryScope scope(device, MemoryCategory::workspace);
        const Tensor on_device = device.empty({experts}, DType::i32, at);
        device.sort_ids(routing.order, routing.rows, on_device, ids,
                        options.order == CopyOrder::choices_first, at);
        counts = device.download(on_device, at);
    }
    if (!device.has_numbers())
        routing.counts = dealt_by_load(ids.elements(), experts, options.load);
    else
        for (const std::int32_t count : counts.values<std::int32_t>())
            routing.counts.push_back(count);
    return routing;
}

Counts counts_by_choice(Device& device, const Tensor& ids, std::int64_t experts,
                        const std::vector<double>& load, SourceLine at) {
    const HostTensor chosen = device.download(ids, at);
    const std::int64_t k = ids.shape().columns();
    Counts counts(static_cast<std::size_t>(k * experts));
    if (device.has_numbers()) {
        for (std::int64_t i = 0; i < chosen.elements(); ++i)
            ++counts[static_cast<std::size_t>(i % k * experts +
                                              static_cast<std::int64_t>(chosen.at(i)))];
        return counts;
    }
    // Splits each expert's count over the choices; these parts add up to the count.
    const Counts all = dealt_by_load(ids.elements(), experts, load);
    for (std::int64_t j = 0; j < k; ++j)
        for (std::int64_t e = 0; e < experts; ++e) {
            const std::int64_t whole = all[static_cast<std::size_t>(e)];
            counts[static_cast<std::size_t>(j * experts + e)] =
                whole * (j + 1) / k - whole * j / k;
        }
    return counts;
}

std::int64_t all_copies(const CountsOfRanks& counts) {
    std::int64_t copies = 0;
    for (const Counts& of_rank : counts.of_rank)
        copies += total(of_rank);
    return copies;
}

std::vector<double> shares_of(const CountsOfRanks& counts, std::int64_t experts) {
    std::vector<double> shares(static_cast<std::size_t>(experts));
    const auto whole = static_cast<double>(std::max<std::int64_t>(all_copies(counts), 1));
    for (const Counts& of_rank : counts.of_rank)
        for (std::size_t i = 0; i < of_rank.size(); ++i)
            shares[i % shares.size()] += static_cast<double>(of_rank[i]);
    for (double& share : shares)
        share /= whole;
    return shares;
}

std::int64_t expert_capacity(double factor, std::int64_t copies, std::int64_t experts) {
    const double exact =
        factor * static_cast<double>(copies) / static_cast<double>(experts);
    if (!(exact < static_cast<double>(copies))) return copies;  // no expert gets more
    // In floating point 1.1 times 50 is more than 55: 1.1 has no finite binary form.
    const double nearest = std::round(exact);
    const bool is_whole = std::abs(exact - nearest) <= 1e-9 * nearest;
    return static_cast<std::int64_t>(is_whole ? nearest : std::ceil(exact));
}

// lesson: capacity
Counts kept_counts(const CountsOfRanks& counts, std::int64_t experts,
                   std::int64_t capacity) {
    const auto n = static_cast<std::size_t>(experts);
    Counts left(n, capacity), kept(n);
    const std::size_t blocks = counts.of_rank.front().size() / n;
    for (std::size_t block = 0; block < blocks; ++block)
        for (std::size_t rank = 0; rank < counts.of_rank.size(); ++rank)
            for (std::size_t e = 0; e < n; ++e) {
                const std::int64_t takes =
                    std::min(left[e], counts.of_rank[rank][block * n + e]);
                left[e] -= takes;
                if (rank == counts.own) kept[e] += takes;
            }
    return kept;
}
// lesson: end

Routing first_of_each(Device& device, const Routing& routing, const Counts& counts,
                      SourceLine at) {
    if (counts == routing.counts) return routing;
    HostTensor places({total(counts)}, DType::i32);
    for (std::int64_t at_place = 0, begin = 0, e = 0;
         e < static_cast<std::int64_t>(counts.size()); ++e) {
        for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(e)]; ++i)
            places.set(at_place++, static_cast<double>(begin + i));
        begin += routing.counts[static_cast<std::size_t>(e)];
    }
    const Tensor kept = device.upload(places, at);
    Routing first{device.empty({kept.elements()}, DType::i32, at),
                  device.empty({kept.elements()}, DType::i32, at), counts};
    const auto take = [&](const Tensor& to, const Tensor& from) {
        device.take_rows(to.reshaped({to.elements(), 1}),
                         from.reshaped({from.elements(), 1}), kept, at);
    };
    take(first.order, routing.order);
    take(first.rows, routing.rows);
    return first;
}

}  // namespace lockstep
