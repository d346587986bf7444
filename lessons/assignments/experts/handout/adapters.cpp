#include "adapters.hpp"

#include "experts.hpp"

using namespace lockstep;

Chosen adapters::choose(Rank& rank, const Tensor& logits, std::int64_t chosen) {
    return ::choose(rank.device(), logits, chosen);
}

Tensor adapters::forward(Rank& rank, const Layer& layer, const Tensor& x) {
    Pass pass;
    return ::forward(rank, layer, x, pass);
}

Passed adapters::pass(Rank& rank, const Layer& layer, const Tensor& x, const Tensor& dy) {
    Pass pass;
    const Tensor y = ::forward(rank, layer, x, pass);
    return {y, ::backward(rank, layer, dy, pass)};
}
