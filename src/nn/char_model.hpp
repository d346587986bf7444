#pragma once

#include "src/nn/module.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep {

/// Views x (B, …) as (B, the product of the rest), without a copy: PyTorch's nn.Flatten.
/// Saves the shape of x, no memory.
class Flatten : public Module {
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
};

struct CharModelSizes {
    std::int64_t vocabulary = 0;  ///< V, different characters
    std::int64_t context = 0;     ///< C, characters that the next one is predicted from
    std::int64_t width = 0;       ///< E, numbers that stand for a character
    std::int64_t hidden = 0;      ///< H, hidden units

    /// Returns how many numbers all parameters have.
    std::int64_t parameters() const {
        return vocabulary * width + (context * width + 1) * hidden +
               (hidden + 1) * vocabulary;
    }
};

/// A language model of characters: logits of the next character from the C before it.
///
///     ids (B, C) -> embedding (B, C, E) -> flat (B, C E) -> hidden (B, H) -> tanh
///     -> logits (B, V)
///
/// Parameters: embedding.weight (V, E), hidden.weight (H, C E), hidden.bias (H),
/// output.weight (V, H), output.bias (V).
///
/// Bengio, Ducharme, Vincent and Jauvin 2003, A neural probabilistic language model, JMLR
/// 3, section 2. Differs: characters instead of words, and no direct connections from the
/// embedding to the output.
std::unique_ptr<Sequential> make_char_model(const ParameterInit& init,
                                            const CharModelSizes& sizes);

}  // namespace lockstep
