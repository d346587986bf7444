#pragma once

#include "src/nn/module.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep {

/// Views x (B, …) as (B, the product of the other sizes), without a copy, like PyTorch's
/// nn.Flatten. Saves only the shape of x.
class Flatten : public Module {
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
};

struct CharModelSizes {
    std::int64_t vocabulary = 0;  ///< V, different characters
    std::int64_t context = 0;     ///< C, characters that the model reads
    std::int64_t width = 0;       ///< E, elements of a character's vector
    std::int64_t hidden = 0;      ///< H, hidden units

    /// Returns the number of elements in all parameters.
    std::int64_t parameters() const {
        return vocabulary * width + (context * width + 1) * hidden +
               (hidden + 1) * vocabulary;
    }
};

/// A language model of characters: predicts the next character from C characters.
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
