#include "gpu/device.hpp"
#include "gpu/kernels/optimizer.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

template <>
void Device::compute(const ops::Sgd& op) {
    with_real(op.parameter.dtype(), [&]<typename T>(T) {
        if (op.options.momentum == 0)
            launch_sgd(stream_.get(), op.parameter.data<T>(), op.gradient.data<const T>(),
                       op.parameter.elements(), op.options);
        else
            launch_sgd_with_momentum(stream_.get(), op.parameter.data<T>(),
                                     op.velocity.data<T>(), op.gradient.data<const T>(),
                                     op.parameter.elements(), op.options);
    });
}

template <>
void Device::compute(const ops::AdamW& op) {
    with_real(op.parameter.dtype(), [&]<typename T>(T) {
        launch_adamw(stream_.get(), op.parameter.data<T>(), op.first_moment.data<T>(),
                     op.second_moment.data<T>(), op.gradient.data<const T>(),
                     op.parameter.elements(),
                     formulas::AdamWStep<T>(op.options, op.step));
    });
}

}  // namespace lockstep::gpu
