#pragma once

#include <cstdint>
#include <vector>

#include "src/device/device.hpp"

namespace lockstep {

/// How N tokens are sent to their experts, k for each token, and back. The N k copies of
/// tokens lie expert by expert. Each expert's copies are in the order of tokens, or of
/// choices (CopyOrder):
///
///     device.take_rows(copies, x, routing.rows);     x (N, width), copies (N k, width)
///     …                                              experts, each on its own rows
///     device.take_rows(by, weights, routing.order);  weights (N k, 1), by (N k, 1)
///     device.scale_rows(copies, by);
///     device.add_rows(y, copies, routing.rows);      y (N, width)
struct Routing {
    Tensor order;  ///< (N k), i32: each copy's place in the flat ids
    Tensor rows;   ///< (N k), i32: each copy's token
    /// The number of copies for each expert. The counts are on the host, because shapes
    /// and the sizes of messages depend on them.
    std::vector<std::int64_t> counts;
};

std::int64_t total(const std::vector<std::int64_t>& counts);

/// The order of one expert's copies of tokens.
enum class CopyOrder : std::uint8_t {
    tokens,        ///< by token; a token's first choice comes first
    choices_first  ///< all tokens' first choices, then all second choices …
};

struct RoutingOptions {
    CopyOrder order = CopyOrder::tokens;
    /// In a run of shapes only, each expert's share of all copies. If it is empty, all
    /// experts get the same number of copies.
    std::vector<double> load{};
};

/// Routes N tokens; ids (N, k), i32, are their experts, as top_k returns them. Sorts the
/// ids, downloads the counts (4 bytes per expert), and waits for them. Throws UsageError
/// for an id outside [0, experts).
///
/// A run of shapes only has no ids. Then an expert gets N k / experts copies, or its
/// share by `load`, rounded down. The remaining copies go to the experts that lost most
/// by rounding; ties go to the expert with the lower number. So the run has the time and
/// the bytes of that load.
Routing route(Device& device, const Tensor& ids, std::int64_t experts,
              const RoutingOptions& options = {}, SourceLine at = SourceLine::here());

/// Returns how often each expert is in ids (N, k): first the counts among all first
/// choices, then among all second choices, and so on. Downloads the ids.
std::vector<std::int64_t> counts_by_choice(Device& device, const Tensor& ids,
                                           std::int64_t experts,
                                           const std::vector<double>& load,
                                           SourceLine at);

/// Splits `copies` over experts in proportion to `load`; equally if `load` is empty.
std::vector<std::int64_t> dealt_by_load(std::int64_t copies, std::int64_t experts,
                                        const std::vector<double>& load);

// A capacity limits how many copies of all ranks' tokens an expert accepts, in the order
// of the copies. A rank's counts are blocks with one count per expert: one block, or one
// block for each choice if choices come first.

/// The counts of all ranks, in the order of the ranks' tokens.
struct CountsOfRanks {
    std::vector<std::vector<std::int64_t>> of_rank;
    std::size_t own = 0;  ///< this rank's place
};

/// Return the number of copies of all ranks, and each expert's share of these copies.
std::int64_t all_copies(const CountsOfRanks& counts);
std::vector<double> shares_of(const CountsOfRanks& counts, std::int64_t experts);

/// Returns how many copies an expert accepts: factor * copies / experts, rounded up, and
/// at most `copies` (Lepikhin et al. 2020, 2006.16668, section 2.2).
std::int64_t expert_capacity(double factor, std::int64_t copies, std::int64_t experts);

/// Returns how many of this rank's copies each expert accepts. If choices come first, all
/// ranks' first choices come before any second choice.
std::vector<std::int64_t> kept_counts(const CountsOfRanks& counts, std::int64_t experts,
                                      std::int64_t capacity);

/// Keeps the first counts[e] copies of each expert e.
Routing first_of_each(Device& device, const Routing& routing,
                      const std::vector<std::int64_t>& counts, SourceLine at);

}  // namespace lockstep
