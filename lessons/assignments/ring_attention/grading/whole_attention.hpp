#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "src/comm/chunks.hpp"
#include "src/core/host_tensor.hpp"

namespace lockstep::lessons::ring_attention {

// One device would compute this: plain loops over all keys, a softmax all at once. And
// what comes of it if a query saw other keys, as mistakes have it.

/// A key that a query does not see has this score.
inline constexpr double kUnseen = -std::numeric_limits<double>::infinity();

/// Makes weights of one query's scores, which are finite or kUnseen, and gives the log of
/// the sum of their exponentials. If no key is seen, the weights are 0.
double make_weights(std::vector<double>& scores);

/// A sequence on several ranks.
struct SharedSequence {
    int ranks = 1;
    std::int64_t tokens = 1, batch = 1, heads = 1, width = 1;
    bool causal = false;

    std::string name() const;
    int next(int rank) const { return (rank + 1) % ranks; }
    /// The rank whose block is on `rank` after so many hops.
    int origin(int rank, int hops) const { return (rank - hops % ranks + ranks) % ranks; }
    /// The hops after which the block of rank `of` is on `rank`.
    int hops(int rank, int of) const { return (rank - of + ranks) % ranks; }
    Chunk own(int rank) const { return chunk(tokens, ranks, rank); }
    int owner(std::int64_t token) const;
    Shape shape() const { return {tokens, batch, heads * width}; }
    /// The bytes of a rank's queries, or of its keys, or its values.
    std::int64_t bytes(int rank) const;
    /// The bytes of a rank's block: its keys and its values.
    std::int64_t block_bytes(int rank) const { return 2 * bytes(rank); }
    std::int64_t bytes_of_blocks() const { return tokens * token_bytes(); }
    /// The bytes of a number for each of a rank's queries, of each head.
    std::int64_t bytes_of_rows(int rank) const { return bytes(rank) / width; }

  private:
    /// Returns the bytes of a token's keys and values.
    std::int64_t token_bytes() const {
        return 2 * batch * heads * width * bytes_of(DType::f64);
    }
};

/// All of it: each (tokens, batch, heads width).
struct WholeAttention {
    HostTensor queries, keys, values, dy;
    std::int64_t heads = 1;
    bool causal = false;

    double factor() const;  ///< of scores: 1/sqrt(width of a head)
};

/// Which keys queries see, and how scores are weighted.
struct View {
    /// Returns the keys that a query sees, each as often as it counts.
    std::function<std::vector<std::int64_t>(std::int64_t query)> seen;
    double factor = 1;     ///< of scores
    bool finished = true;  ///< else weights are not divided by their sum
};

/// As it should be.
View right_view(const WholeAttention& of);

struct WholeResult {
    HostTensor y;            ///< (tokens, batch, heads width)
    HostTensor log_sum_exp;  ///< (batch, heads, tokens)
};

WholeResult attention_of(const WholeAttention& of, const View& view);

struct WholeGradients {
    HostTensor dq, dk, dv;  ///< each (tokens, batch, heads width)
};

/// Returns what the pairs of a query and a key that it sees contribute, with `right`
/// results of forward.
WholeGradients gradients_of(const WholeAttention& of, const WholeResult& right,
                            const View& view);

}  // namespace lockstep::lessons::ring_attention
