#include "src/pipeline/cut_layers.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

/// The cost of layers [0, j) cut into parts, for all j, and the layer with
/// which the last part begins.
struct Cuts {
    std::vector<double> cost;
    std::vector<std::vector<int>> begins;  ///< by part
};

/// The least of `join`(cost of the parts before, cost of the last part).
template <typename Join>
Cuts best_cuts(const std::vector<double>& sums, int parts, Join&& join) {
    const std::size_t ends = sums.size();
    Cuts cuts{std::vector<double>(ends, kImpossible), {}};
    cuts.cost[0] = 0;
    for (int part = 0; part < parts; ++part) {
        std::vector<double> cost(ends, kImpossible);
        std::vector<int> begin(ends, 0);
        for (std::size_t end = 1; end < ends; ++end)
            for (std::size_t from = 0; from < end; ++from) {
                const double sum =
                    join(cuts.cost[from], sums[end] - sums[from]);
                if (sum >= cost[end]) continue;
                cost[end] = sum;
                begin[end] = static_cast<int>(from);
            }
        cuts.cost = std::move(cost);
        cuts.begins.push_back(std::move(begin));
    }
    return cuts;
}

}  // namespace

std::vector<LayerRange> cut_layers(const std::vector<std::int64_t>& costs,
                                   int parts) {
    require(parts >= 1 && static_cast<std::size_t>(parts) <= costs.size(),
            "{} layers cannot be cut into {} parts; each part "
            "needs one",
            costs.size(), parts);
    std::vector<double> sums{0};
    for (const std::int64_t cost : costs) {
        require(cost >= 0, "a layer costs {}; none may cost less than 0",
                cost);
        sums.push_back(sums.back() + static_cast<double>(cost));
    }

    const double dearest =
        best_cuts(sums, parts, [](double before, double last) {
            return std::max(before, last);
        }).cost.back();
    const Cuts even =
        best_cuts(sums, parts, [&](double before, double last) {
            return last > dearest ? kImpossible : before + last * last;
        });

    std::vector<LayerRange> ranges;
    int last = static_cast<int>(costs.size());
    for (int part = parts; part-- > 0;) {
        const int first = even.begins[part][last];
        ranges.push_back({first, last});
        last = first;
    }
    std::ranges::reverse(ranges);
    return ranges;
}

}  // namespace lockstep
