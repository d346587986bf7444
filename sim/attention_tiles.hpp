#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sim/heads.hpp"
#include "sim/lanes.hpp"
#include "sim/matmul.hpp"
#include "src/device/options.hpp"

namespace lockstep::sim {

template <typename T>
inline constexpr T kNone = -std::numeric_limits<T>::infinity();

/// Rows [first, first + count) of a tensor.
struct Stretch {
    std::int64_t first, count;
    std::int64_t end() const { return first + count; }
};

struct KeyTile {
    Stretch keys;
    bool masked;  ///< some query of the tile does not see some key
};

/// Some queries, with all tiles of keys that at least one of these queries sees.
struct QueryTile {
    Stretch queries;
    std::vector<KeyTile> keys;
};

/// Attention cut into tiles of queries by tiles of keys, as on a GPU, where a tile must
/// fit into shared memory. Only one tile's scores are in memory at a time. The cut is the
/// same for every head.
class AttentionTiles {
  public:
    AttentionTiles(std::int64_t queries, std::int64_t keys,
                   const AttentionOptions& options);

    auto begin() const { return tiles_.begin(); }
    auto end() const { return tiles_.end(); }

    /// scores = q k^T of the tile, (queries, keys); -infinity if a query does not see the
    /// key. `q` is the tile's queries multiplied by the factor; `k` has all keys.
    template <typename T>
    void score(std::vector<T>& scores, const std::vector<T>& q, const std::vector<T>& k,
               const Stretch& queries, const KeyTile& tile, std::int64_t width) const {
        scores.resize(static_cast<std::size_t>(queries.count * tile.keys.count));
        multiply_matrices<T>({scores.data(),
                              q.data(),
                              k.data() + tile.keys.first * width,
                              queries.count,
                              width,
                              tile.keys.count,
                              {.transpose_b = true}});
        if (tile.masked) mask(scores.data(), queries, tile.keys);
    }

  private:
    void cut_keys(QueryTile& tile, std::int64_t keys) const;

    template <typename T>
    void mask(T* scores, const Stretch& queries, const Stretch& keys) const {
        const std::int64_t* tokens = key_tokens_.data() + keys.first;
        for (std::int64_t i = 0; i < queries.count; ++i) {
            const std::int64_t last = query_tokens_[queries.first + i];
            for (std::int64_t j = 0; j < keys.count; ++j)
                scores[j] = tokens[j] > last ? kNone<T> : scores[j];
            scores += keys.count;
        }
    }

    // Empty if attention is not causal.
    std::vector<std::int64_t> query_tokens_, key_tokens_;
    std::vector<QueryTile> tiles_;
};

}  // namespace lockstep::sim
