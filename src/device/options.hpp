#pragma once

#include <cstdint>

namespace lockstep {

/// How values are combined across tensors or ranks.
enum class Reduction : std::uint8_t { sum, product, minimum, maximum, mean };

constexpr const char* name_of(Reduction reduction) {
    constexpr const char* kNames[] = {"sum", "product", "minimum", "maximum", "mean"};
    return kNames[static_cast<int>(reduction)];
}

struct MatmulOptions {
    bool transpose_a = false;
    bool transpose_b = false;
    /// Adds to what the destination holds.
    bool accumulate = false;
};

struct SgdOptions {
    double learning_rate = 0.01;
    double momentum = 0;  ///< velocity = momentum * velocity + gradient
    double weight_decay = 0;
};

struct AdamWOptions {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.01;
};

}  // namespace lockstep
