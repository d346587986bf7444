#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "src/comm/rank.hpp"

// Tests and the grader call only these functions, with these types. Your own functions
// may have any signature: adapters.cpp calls them.

/// The state of attention for `rows` queries, on the host, after the keys that have been
/// absorbed so far; a new state has absorbed none. Row-major; values are `width` wide.
/// The state does not grow with the number of keys.
struct OnlineSoftmax {
    OnlineSoftmax(std::int64_t queries, std::int64_t columns)
        : rows(queries),
          width(columns),
          maximum(static_cast<std::size_t>(queries),
                  -std::numeric_limits<double>::infinity()),
          sum(static_cast<std::size_t>(queries)),
          output(static_cast<std::size_t>(queries * columns)) {}

    std::int64_t rows, width;
    std::vector<double> maximum;  ///< (rows), of the scores
    std::vector<double> sum;      ///< (rows), of exp(score - maximum)
    std::vector<double>
        output;  ///< (rows, width), the sum of exp(score - maximum) times the value
};

/// A sequence that is sharded over n ranks: rank r has the tokens of chunk(tokens, n, r)
/// of src/comm/chunks.hpp, in order. Each rank has at least one token, and some ranks
/// have one token more.
struct Sequence {
    std::int64_t tokens = 0;  ///< on all ranks together
    std::int64_t heads = 1;   ///< each head is queries.shape()[2] / heads columns wide
    bool causal = false;      ///< if true, a query sees only keys of tokens up to its own
};

/// One rank's queries, keys and values, or their gradients, for its own tokens. Each is
/// (own tokens, batches, heads width), with the heads side by side.
struct Qkv {
    lockstep::Tensor queries, keys, values;
};

/// The result of attention on a rank.
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
