#pragma once

#include <cstdint>

#include "src/core/philox.hpp"

namespace lockstep {

/// What the results of a device operation are made of, for who follows values through a
/// program: a checker. Operands are numbered as DeviceOperation::reads has them.
struct Derivation {
    enum class Kind : std::uint8_t {
        function,       ///< of all that is read, and of nothing else
        fill,           ///< `factor` everywhere
        random,         ///< numbers `offset` and up of `stream`, rows `pitch` apart
        copy,           ///< what operand 0 holds
        part,           ///< some columns are operand 0's; the others stay
        scale,          ///< `factor` times what was there
        loss_gradient,  ///< `factor` times the derivative of a loss of operand 0
        update          ///< operand 0 stepped along its gradient, operand 1
    };

    Kind kind = Kind::function;
    /// Operands in which the results are linear while the others are held: bit i for
    /// operand i. What is added to is not among them.
    std::uint8_t linear = 0;
    /// The results are added to what was there (which is among the operands, too).
    bool adds = false;
    /// The factor of fill, scale and loss_gradient; if `adds`, that of the sum; of an
    /// update, its learning rate.
    double factor = 1;
    std::int64_t step = 0;  ///< of an update that counts them, from 1
    RandomStream stream{};
    std::int64_t offset = 0;
    std::int64_t pitch = 0;  ///< 0: one row's numbers follow the other's

    /// Linear in the operand, or in each of two.
    static constexpr Derivation linear_in(int operand, int other = -1) {
        Derivation derivation;
        derivation.linear = bit(operand);
        if (other >= 0) derivation.linear |= bit(other);
        return derivation;
    }
    /// Returns that of values which are added to what was there.
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
