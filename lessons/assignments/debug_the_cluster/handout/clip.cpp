// Clips the gradient of a tensor-parallel model by its norm.

#include <cmath>

#include "programs.hpp"

using namespace lockstep;

void clip_gradients(Rank& rank, const std::vector<Tensor>& sharded,
                    const std::vector<Tensor>& replicated, double largest) {
    Device& device = rank.device();
    const Tensor squares = device.zeros({1, 1}, DType::f64);
    const auto count = [&](const std::vector<Tensor>& gradients) {
        for (const Tensor& gradient : gradients) {
            const Tensor row = gradient.reshaped({1, gradient.elements()});
            device.matmul_into(squares, row, row,
                               {.transpose_b = true, .accumulate = true});
        }
    };
    const auto scale = [&](const std::vector<Tensor>& gradients, double factor) {
        for (const Tensor& gradient : gradients)
            device.scale(gradient, factor);
    };

    count(sharded);
    count(replicated);
    rank.world().all_reduce(squares).wait();
    const double norm = std::sqrt(device.download(squares).at(0));
    if (norm <= largest) return;
    scale(sharded, largest / norm);
    scale(replicated, largest / norm);
}
