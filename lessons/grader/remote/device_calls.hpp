#pragma once

#include <cstdint>
#include <tuple>

#include "src/device/device.hpp"

namespace lockstep::lessons {

/// Device's operations. Their places here are their numbers on the line.
inline constexpr std::tuple kDeviceCalls{
    &Device::empty,
    &Device::zeros,
    &Device::upload,
    &Device::upload_into,
    &Device::download,
    &Device::peek,
    &Device::fill,
    &Device::copy,
    &Device::copy_columns,
    &Device::add,
    &Device::scale,
    &Device::multiply,
    &Device::combine,
    &Device::sum,
    &Device::matmul,
    &Device::matmul_into,
    &Device::add_bias,
    &Device::accumulate_rows,
    &Device::tanh,
    &Device::tanh_backward,
    &Device::gelu,
    &Device::gelu_backward,
    &Device::swiglu,
    &Device::swiglu_backward,
    &Device::layer_norm,
    &Device::layer_norm_backward_input,
    &Device::layer_norm_backward_weight,
    &Device::rms_norm,
    &Device::rms_norm_backward_input,
    &Device::rms_norm_backward_weight,
    &Device::head_products,
    &Device::head_sums,
    &Device::add_head_sums,
    &Device::begin_attention,
    &Device::attend,
    &Device::finish_attention,
    &Device::head_row_products,
    &Device::attend_backward,
    &Device::softmax,
    &Device::softmax_backward,
    &Device::cross_entropy,
    &Device::cross_entropy_backward,
    &Device::row_maximum,
    &Device::cross_entropy_parts,
    &Device::cross_entropy_of_parts,
    &Device::cross_entropy_backward_of_parts,
    &Device::squared_error,
    &Device::squared_error_backward,
    &Device::embedding,
    &Device::embedding_backward,
    &Device::sgd,
    &Device::adamw,
    &Device::random_uniform,
    &Device::random_normal,
};

inline constexpr std::size_t kDeviceCallCount = std::tuple_size_v<decltype(kDeviceCalls)>;

/// What a member function of Device takes, as values, and gives.
template <typename Function>
struct SignatureOf;
template <typename R, typename... Arguments>
struct SignatureOf<R (Device::*)(Arguments...)> {
    using Result = R;
    using Values = std::tuple<std::decay_t<Arguments>...>;
};

/// Two of one function are one type. GCC 12 compares no functions in constants where it
/// builds with the sanitizer of undefined behaviour.
template <auto Operation>
struct CallType {};

/// The operation's number.
template <auto Operation, std::size_t I = 0>
constexpr std::size_t number_of_call() {
    static_assert(I < kDeviceCallCount, "the operation is not in kDeviceCalls");
    if constexpr (std::is_same_v<CallType<std::get<I>(kDeviceCalls)>,
                                 CallType<Operation>>)
        return I;
    else
        return number_of_call<Operation, I + 1>();
}

}  // namespace lockstep::lessons
