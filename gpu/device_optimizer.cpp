#include "gpu/device.hpp"
#include "gpu/kernels/optimizer.hpp"

namespace lockstep::gpu {

template <>
void Device::compute(const ops::ClipFactor& op) {
    launch_clip_factor(stream_.get(), op.destination, op.squares, op.most);
}

template <>
void Device::compute(const ops::Sgd& op) {
    const std::int64_t elements = op.parameter.elements();
    if (op.options.momentum == 0)
        launch_sgd(stream_.get(), op.parameter, op.gradient, elements, op.options);
    else
        launch_sgd_with_momentum(stream_.get(), op.parameter, op.velocity, op.gradient,
                                 elements, op.options);
}

template <>
void Device::compute(const ops::AdamW& op) {
    launch_adamw(stream_.get(), op.parameter, op.first_moment, op.second_moment,
                 op.gradient, op.parameter.elements(), op.options, op.step);
}

}  // namespace lockstep::gpu
