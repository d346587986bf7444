#include "sim/device.hpp"
#include "sim/lane_functions.hpp"
#include "src/device/dispatch.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::sim {

namespace {

/// Updates `n` elements at each of the pointers `state…`, by `step(gradient lane, state
/// lanes…)`, on this thread.
template <typename T, typename Step, typename... State>
[[gnu::flatten]] void update_here(std::int64_t n, const T* gradient, const Step& step,
                                  State*... state) {
    for (std::int64_t i = 0; i < n; i += kLane) {
        const std::int64_t count = std::min(kLane, n - i);
        const auto advance = [&](auto... lanes) {
            step(load(gradient + i, count), lanes...);
            (store<T>(state + i, lanes, count), ...);
        };
        advance(load<T>(state + i, count)...);
    }
}

template <typename T, typename Step, typename... State>
void update(std::int64_t n, const T* gradient, const Step& step, State*... state) {
    in_parts(n, kLongPart, [&](std::int64_t first, std::int64_t count) {
        update_here<T>(count, gradient + first, step, (state + first)...);
    });
}

}  // namespace

template <>
void CpuDevice::compute(const ops::ClipFactor& op) {
    with_real(op.squares.dtype(), [&]<typename T>(T) {
        *op.destination.data<T>() =
            formulas::clip_factor(*op.squares.data<T>(), static_cast<T>(op.most));
    });
}

template <>
void CpuDevice::compute(const ops::Sgd& op) {
    with_real(op.parameter.dtype(), [&]<typename T>(T) {
        const auto rate = static_cast<T>(op.options.learning_rate);
        const auto momentum = static_cast<T>(op.options.momentum);
        const auto decay = static_cast<T>(op.options.weight_decay);
        const auto step = [&](const Lane<T>& g, Lane<T>& p) {
            p = formulas::sgd<Lane<T>>(p, g, rate, decay);
        };
        const auto step_with_momentum = [&](const Lane<T>& g, Lane<T>& p, Lane<T>& v) {
            p = formulas::sgd_with_momentum<Lane<T>>(p, g, v, rate, momentum, decay);
        };
        const std::int64_t n = op.parameter.elements();
        if (op.options.momentum == 0)
            update<T>(n, op.gradient.data<T>(), step, op.parameter.data<T>());
        else
            update<T>(n, op.gradient.data<T>(), step_with_momentum,
                      op.parameter.data<T>(), op.velocity.data<T>());
    });
}

template <>
void CpuDevice::compute(const ops::AdamW& op) {
    with_real(op.parameter.dtype(), [&]<typename T>(T) {
        const formulas::AdamWStep<T> step(op.options, op.step);
        update<T>(
            op.parameter.elements(), op.gradient.data<T>(),
            [&](const Lane<T>& g, Lane<T>& p, Lane<T>& first, Lane<T>& second) {
                p = formulas::adamw<Lane<T>>(p, g, first, second, step);
            },
            op.parameter.data<T>(), op.first_moment.data<T>(),
            op.second_moment.data<T>());
    });
}

}  // namespace lockstep::sim
