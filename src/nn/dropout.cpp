#include "src/nn/dropout.hpp"

#include "src/core/require.hpp"

namespace lockstep {

Dropout::Dropout(Device& device, double probability, RandomStream stream)
    : device_(device), probability_(probability), stream_(stream) {
    require(probability >= 0 && probability < 1,
            "Dropout: probability is {}; it must be in [0, 1)", probability);
}

// lesson: dropout
Tensor Dropout::do_forward(const Tensor& x, Saved& saved) {
    const RandomPart part = saved.keep_state("part", part_);
    return device_.dropout(x, probability_, stream_, part, saved.line());
}

Tensor Dropout::do_backward_input(const Tensor& dy, Saved& saved) {
    if (!input_gradient()) return {};
    return device_.dropout(dy, probability_, stream_, saved.value<RandomPart>("part"),
                           saved.line());
}
// lesson: end

Tensor Dropout::do_infer(const Tensor& x, SourceLine /*at*/) {
    return x;
}

}  // namespace lockstep
