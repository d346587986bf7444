#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/core/host_tensor.hpp"
#include "src/core/tensor.hpp"
#include "src/device/token_rows.hpp"

namespace lockstep {

/// Says how sequences are distributed over ranks, and which of these this rank is. The
/// default is one rank with all tokens.
struct TokenDeal {
    TokenOrder order = TokenOrder::contiguous;
    int ranks = 1;
    int rank = 0;

    /// Returns how many tokens of a sequence each rank gets. Throws UsageError, which
    /// begins with `what`, unless all get the same number; zigzag order needs an even
    /// number.
    std::int64_t share_of(std::int64_t tokens, const std::string& what) const;

    /// Return which tokens this rank's `share` rows are, and which tokens the rows of all
    /// ranks are, one rank after another. Throw UsageError if the order is zigzag and the
    /// share odd, or if there is no such rank.
    TokenRows own(std::int64_t share) const;
    TokenRows all(std::int64_t share) const;
};

/// The position of each row of x, i32, in the order of rows. If there are none, rows are
/// whole sequences, from position 0 on, or the tokens of them that a TokenDeal gives.
using RowPlaces = std::optional<Tensor>;

/// Takes "contiguous", "striped" or "zigzag". Throws UsageError for any other name.
TokenOrder token_order(const std::string& name);

/// Return this rank's rows of a whole sequence (s, …); and the whole sequence from all
/// ranks' rows, in rank order. Throw UsageError if it cannot be distributed like this.
HostTensor dealt_rows(const HostTensor& sequence, const TokenDeal& deal);
HostTensor whole_sequence(const std::vector<HostTensor>& of_ranks, TokenOrder order);

}  // namespace lockstep
