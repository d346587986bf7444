#include "src/nn/char_model.hpp"

#include "src/nn/activation.hpp"
#include "src/nn/embedding.hpp"
#include "src/nn/flatten.hpp"
#include "src/nn/linear.hpp"

namespace lockstep {

std::unique_ptr<Sequential> make_char_model(const ParameterInit& init,
                                            const CharModelSizes& sizes) {
    const auto& [vocabulary, context, width, hidden] = sizes;
    auto model = std::make_unique<Sequential>();
    model->add<Embedding>(init.child("embedding"), vocabulary, width);  // (B, C, E)
    model->add<Flatten>();                                              // (B, C E)
    model->add<Linear>(init.child("hidden"), context * width, hidden);  // (B, H)
    model->add<Tanh>(init.device);                                      // (B, H)
    model->add<Linear>(init.child("output"), hidden, vocabulary);       // (B, V)
    return model;
}

}  // namespace lockstep
