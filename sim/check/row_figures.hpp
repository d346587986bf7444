#pragma once

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/check/row_weights.hpp"

namespace lockstep::sim {

inline bool nearly_equal(double one, double other) {
    return std::abs(one - other) <= 1e-9 * std::max(std::abs(one), std::abs(other));
}

/// What is counted for the mean: rows, or elements where errors are squared.
enum class Unit : std::uint8_t { rows, elements };

/// The figures of a gradient.
struct Figures {
    std::map<int, double> by_rank;  ///< factors times counts, of each rank's losses
    double factors = 0;             ///< their sum: 1 for a mean over all
    double multiplier = 1;          ///< since backward
    bool equal = true;              ///< one factor for all
    double factor = 0;              ///< the first
    int ranks() const { return static_cast<int>(by_rank.size()); }
    double total() const { return factors * multiplier; }

    bool all_by_rank(double value) const {
        return std::all_of(by_rank.begin(), by_rank.end(), [&](const auto& entry) {
            return nearly_equal(entry.second, value);
        });
    }
};

std::int64_t count_of(const LossRows& loss, Unit unit);

Figures figures_of(const RowWeights& gradient, Unit unit);

/// A mean over all, or a sum; half of that is as usual for squared errors.
bool is_right(const Figures& figures, bool squared);

/// Ranks, or micro-batches of a rank, each of which took the mean over its own rows.
bool is_mean_of_means(const RowWeights& gradient, const Figures& figures, Unit unit);

}  // namespace lockstep::sim
