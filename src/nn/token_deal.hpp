#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/core/host_tensor.hpp"
#include "src/core/tensor.hpp"
#include "src/device/token_rows.hpp"

namespace lockstep {

/// Says how sequences are distributed over ranks, and which rank this is. The default is
/// one rank with all tokens.
struct TokenDeal {
    TokenOrder order = TokenOrder::contiguous;
    int ranks = 1;
    int rank = 0;

    /// Returns how many tokens of a sequence each rank gets. Throws a UsageError that
    /// begins with `what` unless all ranks get the same number; in zigzag order this
    /// number must be even.
    std::int64_t share_of(std::int64_t tokens, const std::string& what) const;

    /// own() returns which tokens of a sequence this rank's `share` rows are. all()
    /// returns the same for all ranks' rows, rank by rank. Both throw UsageError if the
    /// order is zigzag and the share is odd; own() also if there is no such rank.
    TokenRows own(std::int64_t share) const;
    TokenRows all(std::int64_t share) const;
};

/// The position of each row of x, i32, in the order of rows. Without positions, rows are
/// whole sequences from position 0 on, or the tokens that a TokenDeal gives this rank.
using RowPlaces = std::optional<Tensor>;

/// Accepts "contiguous", "striped" or "zigzag". Throws UsageError for any other name.
TokenOrder token_order(const std::string& name);

/// dealt_rows returns this rank's rows of a whole sequence (s, …); whole_sequence joins
/// all ranks' rows. Both throw UsageError if the rows cannot be distributed like this.
HostTensor dealt_rows(const HostTensor& sequence, const TokenDeal& deal);
HostTensor whole_sequence(const std::vector<HostTensor>& of_ranks, TokenOrder order);

}  // namespace lockstep
