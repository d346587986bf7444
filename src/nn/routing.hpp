#pragma once

#include <cstdint>
#include <vector>

#include "src/device/device.hpp"

namespace lockstep {

/// The way of N tokens to the experts that a router chose for them, k each, and back. The
/// N k copies of tokens lie expert by expert, of each expert's in the order of tokens, or
/// of choices (CopyOrder):
///
///     device.take_rows(copies, x, routing.rows);     x (N, width), copies (N k, width)
///     …                                              experts, each on its own rows
///     device.take_rows(by, weights, routing.order);  weights (N k, 1), by (N k, 1)
///     device.scale_rows(copies, by);
///     device.add_rows(y, copies, routing.rows);      y (N, width)
struct Routing {
    Tensor order;  ///< (N k), i32: the place in the ids, laid out flat, of each copy
    Tensor rows;   ///< (N k), i32: the token of each copy
    /// The copies that each expert gets; they are on the host, since shapes and the sizes
    /// of messages follow from them.
    std::vector<std::int64_t> counts;
};

std::int64_t total(const std::vector<std::int64_t>& counts);

/// In which order the copies of tokens for one expert come.
enum class CopyOrder : std::uint8_t {
    tokens,        ///< that of tokens; of one token, its first choice first
    choices_first  ///< all tokens' first choices, then all second ones …
};

struct RoutingOptions {
    CopyOrder order = CopyOrder::tokens;
    /// The part of all copies that each expert gets in a run that computes shapes only;
    /// if it is empty, all get as many.
    std::vector<double> load{};
};

/// Routes the tokens whose experts are ids (N, k), i32, as top_k gives them. It sorts the
/// ids and waits for the counts, 4 bytes an expert, which it downloads. Throws UsageError
/// for an id outside [0, experts).
///
/// A run that computes shapes only has no ids to look at. There the experts get N k /
/// experts copies each, or what the load says, and the copies that are left over by
/// rounding go to those that lost most by it, of equal ones the first: the run takes the
/// time and sends the bytes of that load.
Routing route(Device& device, const Tensor& ids, std::int64_t experts,
              const RoutingOptions& options = {}, SourceLine at = SourceLine::here());

/// Returns how many of ids (N, k) are which expert, choice by choice: those of the first
/// choice for each expert, then those of the second …. Downloads the ids.
std::vector<std::int64_t> counts_by_choice(Device& device, const Tensor& ids,
                                           std::int64_t experts,
                                           const std::vector<double>& load,
                                           SourceLine at);

/// Returns `copies` in parts as `load` has them, whole numbers; alike if it is empty.
std::vector<std::int64_t> dealt_by_load(std::int64_t copies, std::int64_t experts,
                                        const std::vector<double>& load);

// An expert with a capacity takes so many copies of all ranks' tokens, in their order. A
// rank's counts are blocks of one for each expert: one block, or one for each choice if
// those come first.

/// The ranks' counts, in the order of their tokens.
struct CountsOfRanks {
    std::vector<std::vector<std::int64_t>> of_rank;
    std::size_t own = 0;  ///< this rank's place
};

/// The copies of all ranks, and the part of them that each expert gets.
std::int64_t all_copies(const CountsOfRanks& counts);
std::vector<double> shares_of(const CountsOfRanks& counts, std::int64_t experts);

/// Returns the copies that an expert takes: factor * copies / experts, rounded up, and no
/// more than there are
/// (Lepikhin et al. 2020, 2006.16668, section 2.2).
std::int64_t expert_capacity(double factor, std::int64_t copies, std::int64_t experts);

/// Returns how many of this rank's copies each expert takes. Of an order in which choices
/// come first, all ranks' first choices come before any second one.
std::vector<std::int64_t> kept_counts(const CountsOfRanks& counts, std::int64_t experts,
                                      std::int64_t capacity);

/// Keeps of each expert's copies the first so many.
Routing first_of_each(Device& device, const Routing& routing,
                      const std::vector<std::int64_t>& counts, SourceLine at);

}  // namespace lockstep
