#pragma once

#include <cstdint>
#include <limits>

#include "src/device/options.hpp"

namespace lockstep::gpu {

// A query sees the keys of tokens up to its own. Padding rows of a tile (beyond the
// tensor) have tokens too: a padding query sees nothing, and no query sees a padding key.

/// How many of a tile's keys the tile's queries see.
enum class Sight : std::uint8_t { none, some, all };

/// Rows [begin, end).
struct RowSpan {
    std::int64_t begin, end;
};

/// Returns the rows of a tile that begins at `first`.
__device__ inline RowSpan tile_span(std::int64_t first, std::int64_t tile,
                                    std::int64_t rows) {
    return {first, first + tile < rows ? first + tile : rows};
}

/// The smallest and the largest token of some rows.
struct TokenSpan {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::int64_t most = 0;

    /// Tokens rise within one rank's rows, so the first and the last of each rank are
    /// enough.
    __device__ TokenSpan(const TokenRows& tokens, RowSpan rows) {
        const bool dealt = tokens.order != TokenOrder::contiguous;
        while (rows.begin < rows.end) {
            std::int64_t count = rows.end - rows.begin;
            if (dealt) {
                const std::int64_t left =
                    tokens.share - (tokens.first + rows.begin) % tokens.share;
                count = left < count ? left : count;
            }
            const std::int64_t first = tokens[rows.begin];
            rows.begin += count;
            const std::int64_t last = tokens[rows.begin - 1];
            least = first < least ? first : least;
            most = most < last ? last : most;
        }
    }
};

struct SightOf {
    bool causal;
    TokenRows queries, keys;
    std::int64_t query_rows, key_rows;

    __device__ std::int64_t query_token(std::int64_t row) const {
        if (row >= query_rows) return -1;
        return causal ? queries[row] : 0;
    }
    __device__ std::int64_t key_token(std::int64_t row) const {
        if (row >= key_rows) return std::numeric_limits<std::int64_t>::max();
        return causal ? keys[row] : 0;
    }
    /// Returns whether the `m` queries from `query` on see none, some or all of the `n`
    /// keys from `key` on. If the tile is not `whole`, it contains padding rows, so the
    /// answer is never `all`.
    __device__ Sight of_tile(std::int64_t query, std::int64_t m, std::int64_t key,
                             std::int64_t n, bool whole) const {
        const Sight at_most = whole ? Sight::all : Sight::some;
        if (!causal) return at_most;
        const TokenSpan of_queries(queries, tile_span(query, m, query_rows));
        const TokenSpan of_keys(keys, tile_span(key, n, key_rows));
        if (of_keys.least > of_queries.most) return Sight::none;
        return of_keys.most <= of_queries.least ? at_most : Sight::some;
    }
};

}  // namespace lockstep::gpu
