#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/core/host_tensor.hpp"
#include "src/core/tensor.hpp"
#include "src/device/token_rows.hpp"

namespace lockstep {

/// Says how sequences are dealt to ranks, and which of these this is. By itself it is one
/// rank with all tokens.
struct TokenDeal {
    TokenOrder order = TokenOrder::contiguous;
    int ranks = 1;
    int rank = 0;

    /// Tokens that each rank gets of a sequence. Throws UsageError, which begins with
    /// `what`, unless they can be dealt equally: in zigzag order by two stretches a rank.
    std::int64_t share_of(std::int64_t tokens, const std::string& what) const;

    /// Returns which tokens the rows of this rank are, `share` of them; or those of all
    /// ranks, one rank's behind the other's. Throws UsageError if the order is zigzag and
    /// the share odd, or the deal has no such rank.
    TokenRows own(std::int64_t share) const;
    TokenRows all(std::int64_t share) const;
};

/// The position of each row of x, i32, one each in the order of rows. If there is none,
/// rows are whole sequences, from position 0 on, or what a deal gives of them.
using RowPlaces = std::optional<Tensor>;

/// "contiguous", "striped" or "zigzag". Throws UsageError for another.
TokenOrder token_order(const std::string& name);

/// This rank's rows of a whole sequence (s, …), and back: all ranks' rows, in the order
/// of ranks, as the whole sequence. Throw UsageError if it cannot be dealt so.
HostTensor dealt_rows(const HostTensor& sequence, const TokenDeal& deal);
HostTensor whole_sequence(const std::vector<HostTensor>& of_ranks, TokenOrder order);

}  // namespace lockstep
