#pragma once

#include <cstdint>

#include "src/core/philox.hpp"

namespace lockstep {

/// Says what the results of a device operation are made of, for a checker that follows
/// values through a program. Operands are numbered as in DeviceOperation::reads.
struct Derivation {
    enum class Kind : std::uint8_t {
        function,       ///< a function of all that is read, and of nothing else
        fill,           ///< `factor` everywhere
        random,         ///< numbers of `stream`, from `offset`; rows are `pitch` apart
        copy,           ///< the values of operand 0
        part,           ///< some columns become operand 0; the others do not change
        scale,          ///< `factor` times the old values
        loss_gradient,  ///< `factor` times the derivative of a loss of operand 0
        update          ///< operand 0 stepped along its gradient, operand 1
    };

    Kind kind = Kind::function;
    /// Bit i says that the results are linear in operand i if all other operands are
    /// constant. An operand to which the results are added has no bit.
    std::uint8_t linear = 0;
    /// The results are added to the old values, which are also an operand.
    bool adds = false;
    /// The factor of fill, scale and loss_gradient; if `adds`, the factor of what is
    /// added; for an update, the learning rate.
    double factor = 1;
    std::int64_t step = 0;  ///< of an update, from 1; 0 if it counts no steps
    RandomStream stream{};
    std::int64_t offset = 0;
    std::int64_t pitch = 0;  ///< 0: the rows are contiguous in the stream

    /// Returns the derivation of results that are linear in an operand, or in each of two
    /// operands.
    static constexpr Derivation linear_in(int operand, int other = -1) {
        Derivation derivation;
        derivation.linear = bit(operand);
        if (other >= 0) derivation.linear |= bit(other);
        return derivation;
    }
    /// Returns the derivation of results that are added to the old values.
    static constexpr Derivation adding(Derivation what, double factor = 1) {
        what.adds = true;
        what.factor = factor;
        return what;
    }
    static constexpr Derivation filling(double value) {
        return with_factor(Kind::fill, value);
    }
    static constexpr Derivation scaling(double factor) {
        return with_factor(Kind::scale, factor);
    }
    static constexpr Derivation loss_gradient(double factor) {
        return with_factor(Kind::loss_gradient, factor);
    }
    static constexpr Derivation copying() { return with_factor(Kind::copy, 1); }
    static constexpr Derivation copying_part() { return with_factor(Kind::part, 1); }
    static constexpr Derivation updating(double learning_rate, std::int64_t step = 0) {
        Derivation derivation = with_factor(Kind::update, learning_rate);
        derivation.step = step;
        return derivation;
    }
    static constexpr Derivation random(RandomStream stream, std::int64_t offset,
                                       std::int64_t pitch = 0) {
        Derivation derivation = with_factor(Kind::random, 1);
        derivation.stream = stream;
        derivation.offset = offset;
        derivation.pitch = pitch;
        return derivation;
    }

    constexpr bool is_linear_in(std::size_t operand) const {
        return operand < 8 && (linear >> operand & 1U) != 0;
    }

  private:
    static constexpr std::uint8_t bit(int operand) {
        return static_cast<std::uint8_t>(1U << static_cast<unsigned>(operand));
    }
    static constexpr Derivation with_factor(Kind kind, double factor) {
        Derivation derivation;
        derivation.kind = kind;
        derivation.factor = factor;
        return derivation;
    }
};

}  // namespace lockstep
