#pragma once

#include <cstdint>
#include <vector>

#include "src/device/device.hpp"

namespace lockstep {

/// How N tokens get to the experts that a router chose for them, k each, and back. The N
/// k copies of tokens lie expert by expert. Each expert's copies are in the order of
/// tokens, or of choices (CopyOrder):
///
///     device.take_rows(copies, x, routing.rows);     x (N, width), copies (N k, width)
///     …                                              experts, each on its own rows
///     device.take_rows(by, weights, routing.order);  weights (N k, 1), by (N k, 1)
///     device.scale_rows(copies, by);
///     device.add_rows(y, copies, routing.rows);      y (N, width)
struct Routing {
    Tensor order;  ///< (N k), i32: each copy's place in the flat ids
    Tensor rows;   ///< (N k), i32: each copy's token
    /// The copies that each expert gets. They are on the host, because shapes and the
    /// sizes of messages depend on them.
    std::vector<std::int64_t> counts;
};

std::int64_t total(const std::vector<std::int64_t>& counts);

/// The order of the copies of tokens for one expert.
enum class CopyOrder : std::uint8_t {
    tokens,        ///< by token; a token's first choice comes first
    choices_first  ///< all tokens' first choices, then all second choices …
};

struct RoutingOptions {
    CopyOrder order = CopyOrder::tokens;
    /// In a run of shapes only, each expert's part of all copies. If it is empty, all
    /// experts get the same number.
    std::vector<double> load{};
};

/// Routes the tokens whose experts are ids (N, k), i32, as top_k gives them. Sorts the
/// ids, downloads the counts, 4 bytes per expert, and waits for them. Throws UsageError
/// for an id outside [0, experts).
///
/// A run of shapes only has no ids. There an expert gets N k / experts copies, or its
/// part of `load`, rounded down. The remaining copies go to the experts that lost most by
/// rounding; ties go to the first. So the run takes the time and sends the bytes of that
/// load.
Routing route(Device& device, const Tensor& ids, std::int64_t experts,
              const RoutingOptions& options = {}, SourceLine at = SourceLine::here());

/// Returns how often each expert is in ids (N, k), choice by choice: first among all
/// first choices, then among all second choices, and so on. Downloads the ids.
std::vector<std::int64_t> counts_by_choice(Device& device, const Tensor& ids,
                                           std::int64_t experts,
                                           const std::vector<double>& load,
                                           SourceLine at);

/// Splits `copies` over experts as `load` says, in whole numbers; equally if it is empty.
std::vector<std::int64_t> dealt_by_load(std::int64_t copies, std::int64_t experts,
                                        const std::vector<double>& load);

// A capacity limits how many copies of all ranks' tokens an expert takes, in their order.
// A rank's counts are blocks with one count per expert: one block, or one for each choice
// if choices come first.

/// The counts of all ranks, in the order of their tokens.
struct CountsOfRanks {
    std::vector<std::vector<std::int64_t>> of_rank;
    std::size_t own = 0;  ///< this rank's place
};

/// Return the number of copies of all ranks, and each expert's part of them.
std::int64_t all_copies(const CountsOfRanks& counts);
std::vector<double> shares_of(const CountsOfRanks& counts, std::int64_t experts);

/// Returns how many copies an expert takes: factor * copies / experts, rounded up, and at
/// most `copies` (Lepikhin et al. 2020, 2006.16668, section 2.2).
std::int64_t expert_capacity(double factor, std::int64_t copies, std::int64_t experts);

/// Returns how many of this rank's copies each expert takes. If choices come first, all
/// ranks' first choices come before any second choice.
std::vector<std::int64_t> kept_counts(const CountsOfRanks& counts, std::int64_t experts,
                                      std::int64_t capacity);

/// Keeps the first counts[e] copies of each expert e.
Routing first_of_each(Device& device, const Routing& routing,
                      const std::vector<std::int64_t>& counts, SourceLine at);

}  // namespace lockstep
