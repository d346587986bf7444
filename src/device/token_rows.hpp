#pragma once

#include <cstdint>

namespace lockstep {

/// In which order a sequence's tokens are dealt to N ranks, which get as many each.
enum class TokenOrder : std::uint8_t {
    contiguous,  ///< rank r: stretch r, from 0
    striped,     ///< rank r: tokens r, r + N, r + 2 N, … (Brandon et al., 2311.09431)
    /// Of 2 N stretches, rank r: number r and number 2 N - 1 - r, an early and a late one
    /// (Grattafiori et al. 2024, Llama 3, 2407.21783, section 3.3.2).
    zigzag
};

constexpr const char* name_of(TokenOrder order) {
    constexpr const char* kNames[] = {"contiguous", "striped", "zigzag"};
    return kNames[static_cast<int>(order)];
}

/// Which tokens of a sequence a tensor's rows are: rows `first` and up of all ranks'
/// tokens, one rank's behind the other's. By itself: row i is token i.
struct TokenRows {
    TokenOrder order = TokenOrder::contiguous;
    std::int64_t ranks = 1;
    std::int64_t share = 0;  ///< tokens a rank; even where the order is zigzag
    std::int64_t first = 0;

    /// Those of rank `rank` alone.
    constexpr TokenRows of_rank(std::int64_t rank) const {
        return {order, ranks, share, rank * share};
    }

    /// The token in row `row`. Within a rank's rows, tokens rise.
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

/// The queries in `query_rows` rows and the keys in `key_rows` rows that causal attention
/// brings together: pairs whose key's token is not after the query's.
std::int64_t causal_pairs(const TokenRows& queries, std::int64_t query_rows,
                          const TokenRows& keys, std::int64_t key_rows);

}  // namespace lockstep
