#pragma once

#include <cmath>
#include <vector>

#include "src/core/dtype.hpp"

namespace lockstep::lessons {

/// What rounding may make of a number that is computed in two ways, as a part of the
/// largest one beside it; checks print it.
///
/// In f32 and f64 each term of a sum is rounded, and the bounds are stated. In bf16 sums
/// are f32's, and a number is rounded where it is stored. With ε = 2^-7 from a number to
/// the next, each of K stores one behind the other adds an error whose deviation is at
/// most ε/√12; on two ways together they come to ε √(K/6), and the bound, √K ε, is two
/// and a half times that.
struct RoundingBound {
    double f32;
    double f64;

    double of(DType dtype, int stores) const {
        if (dtype == DType::bf16) return std::sqrt(stores) * Bf16::kEpsilon;
        return dtype == DType::f64 ? f64 : f32;
    }
};

/// The stores one behind the other in a block of a GPT: twelve results forward, as many
/// backward, and as many sums over devices as tensor parallelism makes, four.
constexpr int block_stores(int devices) {
    return 24 + 4 * devices;
}

/// The same for a loss at any step of training, in bf16 as a part of the first loss. The
/// errors of many tokens even out in their mean, but a step at which momentum carries the
/// parameters over a ridge shows them larger.
inline double loss_bound(DType dtype, int stores, const std::vector<double>& losses,
                         const RoundingBound& bound = {1e-3, 1e-11}) {
    const double first = dtype != DType::bf16 ? 1 : losses.empty() ? 0 : losses.front();
    return bound.of(dtype, stores) * first;
}

}  // namespace lockstep::lessons
