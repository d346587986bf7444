#include <cmath>

#include <fmt/format.h>

#include "src/device/check.hpp"
#include "src/device/device.hpp"

namespace lockstep {

namespace {

/// Integers are scaled by integers only.
void check_factor(const Check& check, const Tensor& destination, double factor) {
    check.that(
        destination.dtype() != DType::i32 ||
            (factor == std::nearbyint(factor) && std::abs(factor) <= 2147483647.0),
        [&] { return fmt::format("factor {} for i32; an i32 is expected", factor); });
}

}  // namespace

void Device::fill(const Tensor& destination, double value, SourceLine at) {
    const Check check(*this, "fill", at);
    check.own("destination", destination);
    if (value != 0) check.number("destination", destination);
    check_factor(check, destination, value);
    run({"fill", at, 0, Charge::kOperands, Derivation::filling(value)}, {},
        {&destination}, [&] { do_fill(destination, value); });
}

void Device::copy(const Tensor& destination, const Tensor& source, SourceLine at) {
    const Check check(*this, "copy", at);
    check.own("destination", destination);
    check.like("source", source, "destination", destination);
    check.same_or_apart("source", source, "destination", destination);
    run({"copy", at, 0, Charge::kOperands, Derivation::copying()}, {&source},
        {&destination}, [&] { do_copy(destination, source); });
}

void Device::copy_columns(const Tensor& destination, std::int64_t to,
                          const Tensor& source, std::int64_t from, std::int64_t count,
                          SourceLine at) {
    const Check check(*this, "copy_columns", at);
    check.own("destination", destination);
    check.dtype("source", source, destination.dtype());
    const Shape& target = destination.shape();
    const Shape& origin = source.shape();
    check.that(target.rows() == origin.rows(), [&] {
        return fmt::format("source has {} rows, but destination has {}", origin.rows(),
                           target.rows());
    });
    check.that(count >= 0 && from >= 0 && count <= origin.columns() - from, [&] {
        return fmt::format("{} columns from {} on of source, which has {}", count, from,
                           origin.columns());
    });
    check.that(to >= 0 && count <= target.columns() - to, [&] {
        return fmt::format("{} columns from {} on of destination, which has {}", count,
                           to, target.columns());
    });
    check.apart("source", source, "destination", destination);
    const std::int64_t bytes = target.rows() * count * bytes_of(destination.dtype());
    run({"copy_columns", at, 0, 2 * bytes, Derivation::copying_part()}, {&source},
        {&destination}, [&] {
            if (count > 0) do_copy_columns(destination, to, source, from, count);
        });
}

void Device::add(const Tensor& destination, const Tensor& source, double factor,
                 SourceLine at) {
    const Check check(*this, "add", at);
    check.number("destination", destination);
    check.like("source", source, "destination", destination);
    check.same_or_apart("source", source, "destination", destination);
    check_factor(check, destination, factor);
    run({"add", at, 2 * destination.elements(), Charge::kOperands,
         Derivation::adding(Derivation::linear_in(1), factor)},
        {&destination, &source}, {&destination},
        [&] { do_add(destination, source, factor); });
}

void Device::scale(const Tensor& destination, double factor, SourceLine at) {
    const Check check(*this, "scale", at);
    check.number("destination", destination);
    check_factor(check, destination, factor);
    run({"scale", at, destination.elements(), Charge::kOperands,
         Derivation::scaling(factor)},
        {&destination}, {&destination}, [&] { do_scale(destination, factor); });
}

void Device::multiply(const Tensor& destination, const Tensor& source, SourceLine at) {
    const Check check(*this, "multiply", at);
    check.number("destination", destination);
    check.like("source", source, "destination", destination);
    check.same_or_apart("source", source, "destination", destination);
    run({"multiply", at, destination.elements()}, {&destination, &source}, {&destination},
        [&] { do_multiply(destination, source); });
}

void Device::combine(const Tensor& destination, const Tensor& source, Reduction reduction,
                     SourceLine at) {
    const Check check(*this, "combine", at);
    check.that(reduction != Reduction::mean, [] {
        return std::string(
            "the mean of two tensors taken again and again is no mean; combine with sum, "
            "then scale");
    });
    check.number("destination", destination);
    check.like("source", source, "destination", destination);
    check.same_or_apart("source", source, "destination", destination);
    const Derivation derivation = reduction == Reduction::sum
                                      ? Derivation::adding(Derivation::linear_in(1))
                                      : Derivation{};
    run({"combine", at, destination.elements(), Charge::kOperands, derivation},
        {&destination, &source}, {&destination},
        [&] { do_combine(destination, source, reduction); });
}

void Device::sum(const Tensor& destination, const Tensor& source, bool accumulate,
                 SourceLine at) {
    const Check check(*this, "sum", at);
    check.number("source", source);
    check.row("destination", destination, 1, source.dtype());
    check.apart("destination", destination, "source", source);
    const auto numbers = [&] { do_sum(destination, source, accumulate); };
    const auto numbers_if_empty = [&] {
        if (!accumulate) do_fill(destination, 0);
    };
    Charge charge{"sum", at, source.elements(), Charge::kOperands,
                  Derivation::linear_in(0)};
    charge.derivation.adds = accumulate;
    if (accumulate)
        run(charge, {&source, &destination}, {&destination}, numbers, numbers_if_empty);
    else
        run(charge, {&source}, {&destination}, numbers, numbers_if_empty);
}

}  // namespace lockstep
