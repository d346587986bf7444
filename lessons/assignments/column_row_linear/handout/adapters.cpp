#include "adapters.hpp"

#include "layers.hpp"

using namespace lockstep;

namespace {

adapters::Tensors by_name(const Gradients& left) {
    return {{"dx", left.dx}, {"d_weight", left.d_weight}, {"d_bias", left.d_bias}};
}

Mlp mlp_of(const adapters::Tensors& parts) {
    return {parts.at("weight1"), parts.at("bias1"), parts.at("weight2"),
            parts.at("bias2")};
}

}  // namespace

Tensor adapters::column_forward(Rank& rank, const Tensor& x, const Tensor& weight,
                                const Tensor& bias) {
    return ::column_forward(rank, x, weight, bias);
}

adapters::Tensors adapters::column_backward(Rank& rank, const Tensor& x,
                                            const Tensor& weight, const Tensor& dy,
                                            bool wants_dx) {
    return by_name(::column_backward(rank, x, weight, dy, wants_dx));
}

Tensor adapters::row_forward(Rank& rank, const Tensor& x, const Tensor& weight,
                             const Tensor& bias) {
    return ::row_forward(rank, x, weight, bias);
}

adapters::Tensors adapters::row_backward(Rank& rank, const Tensor& x,
                                         const Tensor& weight, const Tensor& dy) {
    return by_name(::row_backward(rank, x, weight, dy));
}

adapters::Tensors adapters::mlp_forward(Rank& rank, const Tensor& x, const Tensors& mlp) {
    const MlpForward left = ::mlp_forward(rank, x, mlp_of(mlp));
    return {{"y", left.y},
            {"before_gelu", left.before_gelu},
            {"after_gelu", left.after_gelu}};
}

adapters::Tensors adapters::mlp_backward(Rank& rank, const Tensor& x, const Tensors& mlp,
                                         const Tensors& forward, const Tensor& dy,
                                         bool wants_dx) {
    const MlpForward kept{forward.at("y"), forward.at("before_gelu"),
                          forward.at("after_gelu")};
    const MlpGradients left = ::mlp_backward(rank, x, mlp_of(mlp), kept, dy, wants_dx);
    return {{"dx", left.dx},
            {"d_weight1", left.d.weight1},
            {"d_bias1", left.d.bias1},
            {"d_weight2", left.d.weight2},
            {"d_bias2", left.d.bias2}};
}
