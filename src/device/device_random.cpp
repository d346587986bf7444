#include <fmt/format.h>

#include "src/device/check.hpp"
#include "src/device/device.hpp"

namespace lockstep {

namespace {

void check_offset(const Check& check, std::int64_t offset) {
    check.that(offset >= 0, [&] {
        return fmt::format("offset is {}; it must not be negative", offset);
    });
}

}  // namespace

void Device::random_uniform(const Tensor& destination, RandomStream stream, double low,
                            double high, std::int64_t offset, SourceLine at) {
    const Check check(*this, "random_uniform", at);
    check.real("destination", destination);
    check.that(low <= high,
               [&] { return fmt::format("no value lies in [{}, {}]", low, high); });
    check_offset(check, offset);
    run({"random_uniform", at, 0, Charge::kOperands, Derivation::random(stream, offset)},
        {}, {&destination},
        [&] { do_random_uniform(destination, stream, low, high, offset); });
}

void Device::random_normal(const Tensor& destination, RandomStream stream, double mean,
                           double deviation, std::int64_t offset, SourceLine at) {
    const Check check(*this, "random_normal", at);
    check.real("destination", destination);
    check.that(deviation >= 0, [&] {
        return fmt::format("deviation is {}; it must not be negative", deviation);
    });
    check_offset(check, offset);
    run({"random_normal", at, 0, Charge::kOperands, Derivation::random(stream, offset)},
        {}, {&destination},
        [&] { do_random_normal(destination, stream, mean, deviation, offset); });
}

}  // namespace lockstep
