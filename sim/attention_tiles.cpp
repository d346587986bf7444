#include "sim/attention_tiles.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::sim {

namespace {

// Measured sizes: a tile's scores fit into a core's cache together with the operands, and
// the tile's products run at full speed.
constexpr std::int64_t kTileQueries = 128;
constexpr std::int64_t kTileKeys = 256;

std::vector<std::int64_t> tokens_of(const TokenRows& rows, std::int64_t count) {
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
    for (std::int64_t row = 0; row < count; ++row)
        tokens[row] = rows[row];
    return tokens;
}

/// Returns the first and the last token in a stretch of rows.
std::pair<std::int64_t, std::int64_t> range_of(const std::vector<std::int64_t>& tokens,
                                               const Stretch& rows) {
    const auto [least, most] =
        std::minmax_element(tokens.begin() + rows.first, tokens.begin() + rows.end());
    return {*least, *most};
}

}  // namespace

AttentionTiles::AttentionTiles(std::int64_t queries, std::int64_t keys,
                               const AttentionOptions& options) {
    if (options.causal) {
        query_tokens_ = tokens_of(options.queries, queries);
        key_tokens_ = tokens_of(options.keys, keys);
    }
    for (std::int64_t first = 0; first < queries; first += kTileQueries) {
        QueryTile tile{{first, std::min(kTileQueries, queries - first)}, {}};
        cut_keys(tile, keys);
        if (!tile.keys.empty()) tiles_.push_back(tile);
    }
}

void AttentionTiles::cut_keys(QueryTile& tile, std::int64_t keys) const {
    for (std::int64_t first = 0; first < keys; first += kTileKeys) {
        Stretch own{first, std::min(kTileKeys, keys - first)};
        if (key_tokens_.empty()) {
            tile.keys.push_back({own, false});
            continue;
        }
        const auto [earliest, latest] = range_of(query_tokens_, tile.queries);
        // Leaves out keys at the end that no query of the tile sees.
        while (own.count > 0 && key_tokens_[own.end() - 1] > latest)
            --own.count;
        if (own.count == 0) continue;
        tile.keys.push_back({own, range_of(key_tokens_, own).second > earliest});
    }
}

}  // namespace lockstep::sim
