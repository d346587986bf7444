#include <fmt/format.h>

#include "src/device/check.hpp"
#include "src/device/device.hpp"

namespace lockstep {

namespace {

void check_part(const Check& check, const RandomPart& part, const Tensor& destination) {
    check.that(part.offset >= 0, [&] {
        return fmt::format("offset is {}; it must not be negative", part.offset);
    });
    check.that(part.pitch == 0 || part.pitch >= destination.shape().columns(), [&] {
        return fmt::format("rows that are {} numbers apart; destination has {} columns",
                           part.pitch, destination.shape().columns());
    });
}

bool is_contiguous(const RandomPart& part, const Tensor& destination) {
    return part.pitch == 0 || part.pitch == destination.shape().columns();
}

/// draw(tensor, offset) for every run of numbers that `destination` consists of.
template <typename Draw>
void each_run(const Tensor& destination, const RandomPart& part, Draw&& draw) {
    if (is_contiguous(part, destination)) return draw(destination, part.offset);
    const std::int64_t columns = destination.shape().columns();
    for (std::int64_t row = 0; row < destination.shape().rows(); ++row)
        draw(destination.slice(row * columns, columns), part.offset + row * part.pitch);
}

Derivation derivation_of(const RandomStream& stream, const RandomPart& part,
                         const Tensor& destination) {
    return Derivation::random(stream, part.offset,
                              is_contiguous(part, destination) ? 0 : part.pitch);
}

}  // namespace

void Device::random_uniform(const Tensor& destination, RandomStream stream, double low,
                            double high, RandomPart part, SourceLine at) {
    const Check check(*this, "random_uniform", at);
    check.real("destination", destination);
    check.that(low <= high,
               [&] { return fmt::format("no value lies in [{}, {}]", low, high); });
    check_part(check, part, destination);
    run({"random_uniform", at, 0, Charge::kOperands,
         derivation_of(stream, part, destination)},
        {}, {&destination}, [&] {
            each_run(destination, part, [&](const Tensor& row, std::int64_t offset) {
                do_random_uniform(row, stream, low, high, offset);
            });
        });
}

void Device::random_normal(const Tensor& destination, RandomStream stream, double mean,
                           double deviation, RandomPart part, SourceLine at) {
    const Check check(*this, "random_normal", at);
    check.real("destination", destination);
    check.that(deviation >= 0, [&] {
        return fmt::format("deviation is {}; it must not be negative", deviation);
    });
    check_part(check, part, destination);
    run({"random_normal", at, 0, Charge::kOperands,
         derivation_of(stream, part, destination)},
        {}, {&destination}, [&] {
            each_run(destination, part, [&](const Tensor& row, std::int64_t offset) {
                do_random_normal(row, stream, mean, deviation, offset);
            });
        });
}

}  // namespace lockstep
