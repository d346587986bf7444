#pragma once

#include <cmath>
#include <vector>

#include "src/core/dtype.hpp"

namespace lockstep::lessons {

/// A bound on the difference that rounding causes between two ways to compute a number,
/// relative to the largest number of its tensor. Checks print the bound.
///
/// In f32 and f64 each term of a sum is rounded; the two members are the bounds. In bf16,
/// sums are in f32, and a number is rounded when it is stored. Neighbouring numbers of
/// bf16 differ by at most ε = 2^-7 of their size, so each of K successive stores adds an
/// error whose deviation is at most ε/√12. The difference between the two results has the
/// deviation ε √(K/6). The bound is √K ε, two and a half times this deviation.
struct RoundingBound {
    double f32;
    double f64;

    double value(DType dtype, int stores) const {
        if (dtype == DType::bf16) return std::sqrt(stores) * Bf16::kEpsilon;
        return dtype == DType::f64 ? f64 : f32;
    }
};

/// The number of successive stores in a block of a GPT: twelve results forward, twelve
/// backward, and tensor parallelism's four sums over devices, each with `devices` stores.
constexpr int block_stores(int devices) {
    return 24 + 4 * devices;
}

/// The bound for a loss at any training step; in bf16, relative to the first loss. The
/// errors of many tokens average out. But they are larger at a step at which momentum
/// carries the parameters over a ridge.
inline double loss_bound(DType dtype, int stores, const std::vector<double>& losses,
                         const RoundingBound& bound = {1e-3, 1e-11}) {
    const double first = dtype != DType::bf16 ? 1 : losses.empty() ? 0 : losses.front();
    return bound.value(dtype, stores) * first;
}

}  // namespace lockstep::lessons
