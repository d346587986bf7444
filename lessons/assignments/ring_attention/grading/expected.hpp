#pragma once

#include <cstdint>
#include <vector>

#include "src/core/host_tensor.hpp"

namespace lockstep::lessons {

// What the criteria expect: plain loops over all keys, a softmax all at once.

/// Makes weights of one query's scores, which are finite or -infinity, and gives the log
/// of the sum of their exponentials. Where all are -infinity, the weights are 0.
double make_weights(std::vector<double>& scores);

void add_to(HostTensor& tensor, std::int64_t index, double value);

/// A whole sequence: each (tokens, batch, heads width).
struct WholeAttention {
    HostTensor queries, keys, values, dy;
    std::int64_t heads = 1;
    bool causal = false;
};

struct ExpectedAttention {
    HostTensor y, dq, dk, dv;  ///< (tokens, batch, heads width)
    HostTensor log_sum_exp;    ///< (batch, heads, tokens)
};

/// Scores are multiplied by 1/sqrt(width).
ExpectedAttention expected_attention(const WholeAttention& of);

}  // namespace lockstep::lessons
