#pragma once

#include <cmath>

#include "src/device/operation.hpp"

namespace lockstep::ops {

// Moving, combining and adding up.

/// Integers are scaled by integers only.
inline void check_factor(const OperandCheck& check, const Tensor& destination,
                         double factor) {
    check.that(destination.dtype() != DType::i32 ||
                   (factor == std::nearbyint(factor) && std::abs(factor) <= 2147483647.0),
               "factor {} for i32; an i32 is expected", factor);
}

/// Checks two tensors that are combined element by element.
inline void check_pair(const OperandCheck& check, const Tensor& destination,
                       const Tensor& source) {
    check.own("destination", destination);
    check.like("source", source, "destination", destination);
}

struct Fill {
    static constexpr const char* kName = "fill";
    Tensor destination;
    double value = 0;

    void check(const OperandCheck& check) const {
        check.own("destination", destination);
        check_factor(check, destination, value);
    }
    OperandList operands() const { return {writes("destination", destination)}; }
    std::int64_t flops() const { return 0; }
    Derivation derivation() const { return Derivation::filling(value); }
};

struct Copy {
    static constexpr const char* kName = "copy";
    static constexpr bool kInPlace = true;
    Tensor destination;
    Tensor source;

    void check(const OperandCheck& check) const {
        check.own("destination", destination);
        check.like("source", source, "destination", destination);
    }
    OperandList operands() const {
        return {reads("source", source), writes("destination", destination)};
    }
    std::int64_t flops() const { return 0; }
    Derivation derivation() const { return Derivation::copying(); }
};

/// Columns [from, from + count) of source become columns [to, to + count) of destination.
struct CopyColumns {
    static constexpr const char* kName = "copy_columns";
    Tensor destination;
    std::int64_t to = 0;
    Tensor source;
    std::int64_t from = 0;
    std::int64_t count = 0;

    void check(const OperandCheck& check) const {
        check.own("destination", destination);
        check.dtype("source", source, destination.dtype());
        const Shape& target = destination.shape();
        const Shape& origin = source.shape();
        check.that(target.matrix_rows() == origin.matrix_rows(),
                   "source has {} rows, but destination has {}", origin.matrix_rows(),
                   target.matrix_rows());
        check.that(count >= 0 && from >= 0 && count <= origin.columns() - from,
                   "source has {} columns, but {} from column {} on are needed",
                   origin.columns(), count, from);
        check.that(to >= 0 && count <= target.columns() - to,
                   "destination has {} columns, but {} from column {} on are needed",
                   target.columns(), count, to);
    }
    OperandList operands() const {
        const std::int64_t bytes =
            destination.shape().matrix_rows() * count * bytes_of(destination.dtype());
        return {sized(bytes, reads("source", source)),
                sized(bytes, writes("destination", destination))};
    }
    std::int64_t flops() const { return 0; }
    Derivation derivation() const { return Derivation::copying_part(); }
};

/// destination += factor * source.
struct Add {
    static constexpr const char* kName = "add";
    static constexpr bool kInPlace = true;
    Tensor destination;
    Tensor source;
    double factor = 1;

    void check(const OperandCheck& check) const {
        check_pair(check, destination, source);
        check_factor(check, destination, factor);
    }
    OperandList operands() const {
        return {adds_to("destination", destination), reads("source", source)};
    }
    std::int64_t flops() const { return 2 * destination.elements(); }
    Derivation derivation() const {
        return Derivation::adding(Derivation::linear_in(1), factor);
    }
};

/// destination *= factor.
struct Scale {
    static constexpr const char* kName = "scale";
    Tensor destination;
    double factor = 1;

    void check(const OperandCheck& check) const {
        check.own("destination", destination);
        check_factor(check, destination, factor);
    }
    OperandList operands() const { return {updates("destination", destination)}; }
    std::int64_t flops() const { return destination.elements(); }
    Derivation derivation() const { return Derivation::scaling(factor); }
};

/// destination *= factor[0].
struct ScaleByTensor {
    static constexpr const char* kName = "scale_by_tensor";
    Tensor destination;
    Tensor factor;

    void check(const OperandCheck& check) const {
        check.real("destination", destination);
        check.row("factor", factor, 1, computed_in(destination.dtype()));
    }
    OperandList operands() const {
        return {updates("destination", destination), reads("factor", factor)};
    }
    std::int64_t flops() const { return destination.elements(); }
    Derivation derivation() const { return {}; }
};

/// destination *= source, element by element.
struct Multiply {
    static constexpr const char* kName = "multiply";
    static constexpr bool kInPlace = true;
    Tensor destination;
    Tensor source;

    void check(const OperandCheck& check) const {
        check_pair(check, destination, source);
    }
    OperandList operands() const {
        return {updates("destination", destination), reads("source", source)};
    }
    std::int64_t flops() const { return destination.elements(); }
    Derivation derivation() const { return {}; }
};

/// destination = reduction of (destination, source), element by element.
struct Combine {
    static constexpr const char* kName = "combine";
    static constexpr bool kInPlace = true;
    Tensor destination;
    Tensor source;
    Reduction reduction = Reduction::sum;

    void check(const OperandCheck& check) const {
        check.that(reduction != Reduction::mean,
                   "repeated means of two tensors are not the mean of all; combine with "
                   "sum, then scale");
        check_pair(check, destination, source);
    }
    OperandList operands() const {
        return {reduction == Reduction::sum ? adds_to("destination", destination)
                                            : updates("destination", destination),
                reads("source", source)};
    }
    std::int64_t flops() const { return destination.elements(); }
    Derivation derivation() const {
        return reduction == Reduction::sum ? Derivation::linear_in(1) : Derivation{};
    }
};

/// destination (1) (+)= the sum of all elements of source.
struct Sum {
    static constexpr const char* kName = "sum";
    Tensor destination;
    Tensor source;
    bool accumulate = false;

    void check(const OperandCheck& check) const {
        check.own("source", source);
        check.row("destination", destination, 1, computed_in(source.dtype()));
    }
    OperandList operands() const {
        return {reads("source", source), accumulate ? adds_to("destination", destination)
                                                    : writes("destination", destination)};
    }
    std::int64_t flops() const { return source.elements(); }
    Derivation derivation() const { return Derivation::linear_in(0); }
    void when_empty(const auto& fill) const {
        if (!accumulate) fill(destination, 0);
    }
};

/// destination (1) += the sum of x^2 over all elements.
struct SumOfSquares {
    static constexpr const char* kName = "sum_of_squares";
    Tensor destination;
    Tensor x;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.row("destination", destination, 1, computed_in(x.dtype()));
    }
    OperandList operands() const {
        return {reads("x", x), adds_to("destination", destination)};
    }
    std::int64_t flops() const { return 2 * x.elements(); }
    Derivation derivation() const { return {}; }
};

/// destination = source, each element rounded to the destination's type.
struct Cast {
    static constexpr const char* kName = "cast";
    Tensor destination;
    Tensor source;

    void check(const OperandCheck& check) const {
        check.real("destination", destination);
        check.real("source", source);
        check.matrix("source", source, destination.shape().matrix_rows(),
                     destination.shape().columns());
    }
    OperandList operands() const {
        return {reads("source", source), writes("destination", destination)};
    }
    std::int64_t flops() const { return 0; }
    Derivation derivation() const { return Derivation::linear_in(0); }
};

using MoveOperations = OperationList<Fill, Copy, CopyColumns, Add, Scale, ScaleByTensor,
                                     Multiply, Combine, Cast, Sum, SumOfSquares>;

}  // namespace lockstep::ops
