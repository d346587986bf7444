#include "adapters.hpp"

#include "online_softmax.hpp"
#include "ring_attention.hpp"

using namespace lockstep;

void adapters::absorb(OnlineSoftmax& state, const std::vector<double>& scores,
                      const std::vector<double>& values) {
    ::absorb(state, scores, values);
}

void adapters::merge(OnlineSoftmax& state, const OnlineSoftmax& other) {
    ::merge(state, other);
}

std::vector<double> adapters::finish(const OnlineSoftmax& state) {
    return ::finish(state);
}

Attended adapters::forward(Rank& rank, const Qkv& own, const Sequence& sequence) {
    return ring_attention(rank, own, sequence);
}

Qkv adapters::backward(Rank& rank, const Qkv& own, const Attended& attended,
                       const Tensor& dy, const Sequence& sequence) {
    return ring_attention_backward(rank, own, attended, dy, sequence);
}
