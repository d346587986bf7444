#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "src/comm/rank.hpp"

// All that tests and the grader call, and the types in which they ask. How your own
// functions are called is up to you: adapters.cpp calls them.

/// Attention of `rows` queries has come to this, on the host, after the keys it has seen
/// so far: nothing, to begin with. Row-major; values are `width` wide. It stays this
/// large, however many keys there are.
struct OnlineSoftmax {
    OnlineSoftmax(std::int64_t queries, std::int64_t columns)
        : rows(queries),
          width(columns),
          maximum(static_cast<std::size_t>(queries),
                  -std::numeric_limits<double>::infinity()),
          sum(static_cast<std::size_t>(queries)),
          output(static_cast<std::size_t>(queries * columns)) {}

    std::int64_t rows, width;
    std::vector<double> maximum;  ///< (rows): of the scores
    std::vector<double> sum;      ///< (rows): of exp(score - maximum)
    std::vector<double>
        output;  ///< (rows, width): of exp(score - maximum) times the value
};

/// A sequence that n ranks share out: rank r has the tokens of chunk(tokens, n, r) of
/// src/comm/chunks.hpp, in order. That is one token at least, and on some ranks one more
/// than on others.
struct Sequence {
    std::int64_t tokens = 0;  ///< of all ranks together
    std::int64_t heads = 1;   ///< each queries.shape()[2] / heads columns wide
    bool causal = false;      ///< a query sees the keys of tokens up to its own
};

/// One rank's queries, keys and values, or their gradients: of its tokens, each (own
/// tokens, batches, heads width), head beside head.
struct Qkv {
    lockstep::Tensor queries, keys, values;
};

/// Attention on a rank comes to this.
struct Attended {
    lockstep::Tensor y;            ///< (own tokens, batches, heads width)
    lockstep::Tensor log_sum_exp;  ///< (batches, heads, own tokens)
};

namespace adapters {

void absorb(OnlineSoftmax& state, const std::vector<double>& scores,
            const std::vector<double>& values);
void merge(OnlineSoftmax& state, const OnlineSoftmax& other);
std::vector<double> finish(const OnlineSoftmax& state);

Attended forward(lockstep::Rank& rank, const Qkv& own, const Sequence& sequence);
Qkv backward(lockstep::Rank& rank, const Qkv& own, const Attended& attended,
             const lockstep::Tensor& dy, const Sequence& sequence);

}  // namespace adapters
