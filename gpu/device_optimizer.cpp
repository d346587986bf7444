#include "gpu/device.hpp"
#include "gpu/kernels/optimizer.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

void Device::do_sgd(const Tensor& parameter, const Tensor& gradient,
                    const Tensor& velocity, const SgdOptions& options) {
    with_real(parameter.dtype(), [&]<typename T>(T) {
        if (options.momentum == 0)
            launch_sgd(stream_.get(), parameter.data<T>(), gradient.data<const T>(),
                       parameter.elements(), options);
        else
            launch_sgd_with_momentum(stream_.get(), parameter.data<T>(),
                                     velocity.data<T>(), gradient.data<const T>(),
                                     parameter.elements(), options);
    });
}

void Device::do_adamw(const Tensor& parameter, const Tensor& gradient,
                      const Tensor& first_moment, const Tensor& second_moment,
                      std::int64_t step, const AdamWOptions& options) {
    with_real(parameter.dtype(), [&]<typename T>(T) {
        launch_adamw(stream_.get(), parameter.data<T>(), first_moment.data<T>(),
                     second_moment.data<T>(), gradient.data<const T>(),
                     parameter.elements(), formulas::AdamWStep<T>(options, step));
    });
}

}  // namespace lockstep::gpu
