#pragma once

#include "src/device/operation.hpp"

namespace lockstep::ops {

// Optimizers, which update state and parameter in place, and the factor that scales
// gradients before an update.

/// destination (1) = min(1, most / (sqrt(squares) + 1e-6)).
struct ClipFactor {
    static constexpr const char* kName = "clip_factor";
    static constexpr bool kInPlace = true;
    Tensor destination;
    Tensor squares;
    double most = 1;

    void check(const OperandCheck& check) const {
        check.real("squares", squares);
        check.row("squares", squares, 1, squares.dtype());
        check.row("destination", destination, 1, squares.dtype());
        check.that(most >= 0, "most is {}; it must not be negative", most);
    }
    OperandList operands() const {
        return {reads("squares", squares), writes("destination", destination)};
    }
    /// Square root, add, divide, minimum.
    std::int64_t flops() const { return 4; }
    Derivation derivation() const { return {}; }
};

/// A gradient may be bf16 if its parameter, a master copy, is f32.
inline void check_gradient(const OperandCheck& check, const Tensor& gradient,
                           const Tensor& parameter) {
    check.real("parameter", parameter);
    check.real("gradient", gradient);
    check.matrix("gradient", gradient, parameter.shape().matrix_rows(),
                 parameter.shape().columns());
    if (gradient.dtype() != DType::bf16 || parameter.dtype() != DType::f32)
        check.dtype("gradient", gradient, parameter.dtype());
}

struct Sgd {
    static constexpr const char* kName = "sgd";
    Tensor parameter;
    Tensor gradient;
    Tensor velocity;  ///< none if there is no momentum
    SgdOptions options;

    void check(const OperandCheck& check) const {
        check_gradient(check, gradient, parameter);
        if (options.momentum != 0)
            check.like("velocity", velocity, "parameter", parameter);
    }
    OperandList operands() const {
        return {updates("parameter", parameter), reads("gradient", gradient),
                only_if(options.momentum != 0, updates("velocity", velocity))};
    }
    std::int64_t flops() const {
        const int each =
            2 + (options.weight_decay != 0 ? 2 : 0) + (options.momentum != 0 ? 2 : 0);
        return each * parameter.elements();
    }
    Derivation derivation() const { return Derivation::updating(options.learning_rate); }
};

struct AdamW {
    static constexpr const char* kName = "adamw";
    Tensor parameter;
    Tensor gradient;
    Tensor first_moment;
    Tensor second_moment;
    std::int64_t step = 1;
    AdamWOptions options;

    void check(const OperandCheck& check) const {
        check_gradient(check, gradient, parameter);
        check.like("first_moment", first_moment, "parameter", parameter);
        check.like("second_moment", second_moment, "parameter", parameter);
        check.that(step >= 1, "step is {}; steps count from 1", step);
    }
    OperandList operands() const {
        return {updates("parameter", parameter), reads("gradient", gradient),
                updates("first_moment", first_moment),
                updates("second_moment", second_moment)};
    }
    std::int64_t flops() const { return 14 * parameter.elements(); }
    Derivation derivation() const {
        return Derivation::updating(options.learning_rate, step);
    }
};

using OptimizerOperations = OperationList<ClipFactor, Sgd, AdamW>;

}  // namespace lockstep::ops
