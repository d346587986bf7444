#pragma once

#include <cstdint>

#include "src/parallel/context_parallel.hpp"

namespace lockstep {

/// The sizes of attention whose s tokens N ranks share out. N divides the
/// tokens and, for Ulysses, the heads.
struct ContextShape {
    int ranks = 1;               ///< N
    std::int64_t tokens = 0;     ///< s
    std::int64_t batch = 0;      ///< b
    std::int64_t heads = 0;      ///< a
    std::int64_t key_heads = 0;  ///< g
    std::int64_t width = 0;      ///< of a head
};

/// The messages and elements that a rank sends.
struct Sent {
    std::int64_t elements = 0;
    std::int64_t messages = 0;
    bool operator==(const Sent&) const = default;
};

/// In one pass through one layer's attention, by the formulas that the
/// methods' headers give. Forward of Ring Self-Attention and of Ring
/// Attention: 2(N-1) b a (s/N) width elements where g = a (Li et al. 2021,
/// 2105.13120, section 3.2.2); in 2(N-1) messages and in N-1.
Sent sent_forward(ContextMethod method, const ContextShape& shape);
Sent sent_backward(ContextMethod method, const ContextShape& shape);

/// Returns what a rank would send if the weights were shared out instead, as Megatron's
/// layer does (Narayanan et al. 2021, 2104.04473, section 3.2), forward and backward,
/// attention and MLP: 8 b s h (N-1)/N elements, h = a width.
std::int64_t tensor_parallel_elements(const ContextShape& shape);

}  // namespace lockstep
