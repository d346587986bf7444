#pragma once

#include <cstdint>

namespace lockstep::flops {

// What an element of an operation costs in floating point operations: one for each +, -,
// *, /, maximum and square root that its textbook formula has, kTranscendental for exp,
// tanh, erf and log. Matrix products count 2mkn; copies, fills, embeddings and random
// numbers, which do none or are bound by memory, 0. Only products weigh in a run's time;
// the rest is bound by memory, whose bytes are counted exactly.

inline constexpr std::int64_t kTranscendental = 8;

inline constexpr std::int64_t kTanh = kTranscendental;
inline constexpr std::int64_t kTanhBackward = 3;
inline constexpr std::int64_t kGelu = kTranscendental + 4;
inline constexpr std::int64_t kGeluBackward = 2 * kTranscendental + 8;
// Sigmoid: exp, add, divide; times the gate, times the rest.
inline constexpr std::int64_t kSwiglu = kTranscendental + 4;
// Sigmoid; silu: 1; the gate's: 5, the rest's: 1.
inline constexpr std::int64_t kSwigluBackward = kTranscendental + 9;

// Mean: 1. Variance: subtract, square, add. Normalize: subtract, multiply. Affine: 2.
inline constexpr std::int64_t kLayerNorm = 8;
// x^: 2. dy w: 1. Two sums: 3. Combination: 5.
inline constexpr std::int64_t kLayerNormBackwardInput = 11;
// x^: 2. d_weight: multiply, add. d_bias: 1.
inline constexpr std::int64_t kLayerNormBackwardWeight = 5;

// Square, add; normalize: 1; gain: 1.
inline constexpr std::int64_t kRmsNorm = 4;
// x^: 1. dy w: 1. Sum: 2. Combination: 3.
inline constexpr std::int64_t kRmsNormBackwardInput = 7;
// x^: 1. d_weight: multiply, add.
inline constexpr std::int64_t kRmsNormBackwardWeight = 3;

// Maximum, subtract, exp, sum; then divide.
inline constexpr std::int64_t kCrossEntropy = kTranscendental + 3;
inline constexpr std::int64_t kSoftmax = kCrossEntropy + 1;
inline constexpr std::int64_t kSoftmaxBackward = 4;
// A score on its way through the online softmax, beside the products: scale, then what
// kCrossEntropy has. Its backward: scale, subtract, exp; subtract, multiply, scale.
inline constexpr std::int64_t kAttend = kCrossEntropy + 1;
inline constexpr std::int64_t kAttendBackward = kTranscendental + 5;
// Log and add a row; divide an element.
inline constexpr std::int64_t kLogSumExp = kTranscendental + 1;
inline constexpr std::int64_t kCrossEntropyBackward = kSoftmax + 1;
// Subtract, exp, sum.
inline constexpr std::int64_t kCrossEntropyParts = kTranscendental + 2;
// Subtract, exp, divide, scale.
inline constexpr std::int64_t kCrossEntropyBackwardOfParts = kTranscendental + 3;
inline constexpr std::int64_t kSquaredError = 3;
inline constexpr std::int64_t kSquaredErrorBackward = 2;

inline constexpr std::int64_t kSgd = 2;
inline constexpr std::int64_t kSgdMomentum = 2;
inline constexpr std::int64_t kSgdDecay = 2;
inline constexpr std::int64_t kAdamW = 14;

}  // namespace lockstep::flops
