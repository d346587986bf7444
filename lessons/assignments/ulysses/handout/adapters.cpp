#include "adapters.hpp"

#include "ulysses.hpp"

using namespace lockstep;

Tensor adapters::to_heads(Rank& rank, const Tensor& own_tokens, int parts) {
    return ::to_heads(rank, own_tokens, parts);
}

Tensor adapters::to_tokens(Rank& rank, const Tensor& own_heads, int parts) {
    return ::to_tokens(rank, own_heads, parts);
}

Tensor adapters::forward(Rank& rank, const Tensor& x, Module& attention, Saved& saved) {
    return ulysses_forward(rank, x, attention, saved);
}

Tensor adapters::backward(Rank& rank, const Tensor& dy, Module& attention, Saved& saved) {
    return ulysses_backward(rank, dy, attention, saved);
}
