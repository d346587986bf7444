#pragma once

#include <cstdint>

#include "src/parallel/context_parallel.hpp"

namespace lockstep {

/// The sizes of an attention whose s tokens are sharded over N ranks. N divides the
/// tokens and, for Ulysses, the heads.
struct ContextShape {
    int ranks = 1;               ///< N
    std::int64_t tokens = 0;     ///< s
    std::int64_t batch = 0;      ///< b
    std::int64_t heads = 0;      ///< a
    std::int64_t key_heads = 0;  ///< g
    std::int64_t width = 0;      ///< of a head
};

/// The numbers of elements and messages that a rank sends.
struct Sent {
    std::int64_t elements = 0;
    std::int64_t messages = 0;
    bool operator==(const Sent&) const = default;
};

/// Return what a rank sends in one pass through one layer's attention, by the formulas in
/// the methods' headers. If g = a, forward sends the same 2(N-1) b a (s/N) width elements
/// in Ring Self-Attention (2(N-1) messages) and in Ring Attention (N-1 messages); see Li
/// et al. 2021, 2105.13120, section 3.2.2.
Sent sent_forward(ContextMethod method, const ContextShape& shape);
Sent sent_backward(ContextMethod method, const ContextShape& shape);

/// Returns the number of elements that a rank would send with tensor parallelism, as in
/// Megatron's layer (Narayanan et al. 2021, 2104.04473, section 3.2): 8 b s h (N-1)/N for
/// forward and backward of attention and MLP, with h = a width.
std::int64_t tensor_parallel_elements(const ContextShape& shape);

}  // namespace lockstep
