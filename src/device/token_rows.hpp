#pragma once

#include <cstdint>

namespace lockstep {

/// The order in which a sequence's tokens are sharded over N ranks, in equal shares.
enum class TokenOrder : std::uint8_t {
    contiguous,  ///< rank r has stretch r, counted from 0
    striped,     ///< rank r has tokens r, r + N, … (Brandon et al., 2311.09431)
    /// Rank r has stretches r and 2 N - 1 - r of 2 N, an early and a late stretch
    /// (Grattafiori et al. 2024, Llama 3, 2407.21783, section 3.3.2).
    zigzag
};

constexpr const char* name_of(TokenOrder order) {
    constexpr const char* kNames[] = {"contiguous", "striped", "zigzag"};
    return kNames[static_cast<int>(order)];
}

/// Says which token of a sequence each row of a tensor is. The tokens are listed one rank
/// after another; the tensor's rows are this list from place `first` on. Default: row i
/// is token i.
struct TokenRows {
    TokenOrder order = TokenOrder::contiguous;
    std::int64_t ranks = 1;
    std::int64_t share = 0;  ///< tokens of each rank; an even number for zigzag
    std::int64_t first = 0;

    /// Returns the rows of rank `rank`.
    constexpr TokenRows of_rank(std::int64_t rank) const {
        return {order, ranks, share, rank * share};
    }

    /// Returns the token in row `row`. Tokens ascend within a rank's rows.
    // lesson: token-rows
    constexpr std::int64_t operator[](std::int64_t row) const {
        const std::int64_t place = first + row;
        if (order == TokenOrder::contiguous) return place;
        const std::int64_t rank = place / share;
        const std::int64_t own = place - rank * share;
        if (order == TokenOrder::striped) return own * ranks + rank;
        const std::int64_t stretch = share / 2;
        const bool early = own < stretch;
        return early ? rank * stretch + own
                     : (2 * ranks - 1 - rank) * stretch + own - stretch;
    }
    // lesson: end
    bool operator==(const TokenRows&) const = default;
};

/// Returns the number of pairs of a query and a key in causal attention over `query_rows`
/// queries and `key_rows` keys. In a pair, the key's token is not after the query's.
std::int64_t causal_pairs(const TokenRows& queries, std::int64_t query_rows,
                          const TokenRows& keys, std::int64_t key_rows);

}  // namespace lockstep
