#include "src/nn/char_model.hpp"

#include "src/core/require.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/embedding.hpp"
#include "src/nn/linear.hpp"

namespace lockstep {

Tensor Flatten::do_forward(const Tensor& x, Saved& saved) {
    require(x.shape().dimensions() > 0,
            "Flatten got a scalar; it needs a first dimension to keep");
    saved.keep_value("shape of x", x.shape());
    std::int64_t rest = 1;
    for (int d = 1; d < x.shape().dimensions(); ++d)
        rest *= x.shape()[d];
    return x.reshaped({x.shape()[0], rest});
}

Tensor Flatten::do_backward_input(const Tensor& dy, Saved& saved) {
    return dy.reshaped(saved.value<Shape>("shape of x"));
}

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
