#include <string>

#include <fmt/format.h>

#include "src/device/check.hpp"
#include "src/device/device.hpp"
#include "src/device/flops.hpp"

namespace lockstep {

void Device::sgd(const Tensor& parameter, const Tensor& gradient, const Tensor& velocity,
                 const SgdOptions& options, SourceLine at) {
    const Check check(*this, "sgd", at);
    check.real("parameter", parameter);
    check.like("gradient", gradient, "parameter", parameter);
    check.apart("gradient", gradient, "parameter", parameter);
    const std::int64_t each = flops::kSgd +
                              (options.weight_decay != 0 ? flops::kSgdDecay : 0) +
                              (options.momentum != 0 ? flops::kSgdMomentum : 0);
    const Charge charge{"sgd", at, each * parameter.elements(), Charge::kOperands,
                        Derivation::updating()};
    const auto numbers = [&] { do_sgd(parameter, gradient, velocity, options); };
    if (options.momentum == 0) {
        run(charge, {&parameter, &gradient}, {&parameter}, numbers);
        return;
    }
    check.like("velocity", velocity, "parameter", parameter);
    check.apart("velocity", velocity, "parameter", parameter);
    check.apart("velocity", velocity, "gradient", gradient);
    run(charge, {&parameter, &gradient, &velocity}, {&parameter, &velocity}, numbers);
}

void Device::adamw(const Tensor& parameter, const Tensor& gradient,
                   const Tensor& first_moment, const Tensor& second_moment,
                   std::int64_t step, const AdamWOptions& options, SourceLine at) {
    const Check check(*this, "adamw", at);
    check.real("parameter", parameter);
    check.like("gradient", gradient, "parameter", parameter);
    check.like("first_moment", first_moment, "parameter", parameter);
    check.like("second_moment", second_moment, "parameter", parameter);
    check.apart("gradient", gradient, "parameter", parameter);
    check.apart("first_moment", first_moment, "parameter", parameter);
    check.apart("first_moment", first_moment, "gradient", gradient);
    check.apart("second_moment", second_moment, "parameter", parameter);
    check.apart("second_moment", second_moment, "gradient", gradient);
    check.apart("second_moment", second_moment, "first_moment", first_moment);
    check.that(step >= 1,
               [&] { return fmt::format("step is {}; steps count from 1", step); });
    run({"adamw", at, flops::kAdamW * parameter.elements(), Charge::kOperands,
         Derivation::updating()},
        {&parameter, &gradient, &first_moment, &second_moment},
        {&parameter, &first_moment, &second_moment}, [&] {
            do_adamw(parameter, gradient, first_moment, second_moment, step, options);
        });
}

}  // namespace lockstep
