#include "src/nn/position_embedding.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/nn/embedding.hpp"

namespace lockstep {

PositionEmbedding::PositionEmbedding(const ParameterInit& init, std::int64_t context,
                                     std::int64_t width, TokenDeal deal)
    : device_(init.device),
      weight_(init, "weight", table_shape(init, context, width)),
      deal_(deal) {
    device_.random_normal(weight_.value, RandomStream(init.seed, weight_.name()), 0, 1);
}

const Tensor& PositionEmbedding::places_of(const Tensor& x) {
    require(x.shape().dimensions() == 3,
            "{} got x of shape {}; (sequence, batch, width) is expected", weight_.name(),
            x.shape());
    const std::int64_t length = x.shape()[0];
    const std::int64_t batch = x.shape()[1];
    require(deal_.ranks * length <= weight_.shape()[0],
            "{} has {} places, but the sequence takes {}", weight_.name(),
            weight_.shape()[0], deal_.ranks * length);
    const TokenRows tokens = deal_.own(length);
    const Shape shape{length, batch};
    if (places_ && places_.shape() == shape) return places_;
    HostTensor places(shape, DType::i32);
    for (std::int64_t i = 0; i < places.elements(); ++i)
        places.set(i, static_cast<double>(tokens[i / batch]));
    const MemoryScope scope(device_, MemoryCategory::workspace);
    return places_ = device_.upload(places);
}

Tensor PositionEmbedding::do_forward(const Tensor& x, Saved& saved) {
    const Tensor& places = places_of(x);
    saved.keep("places", places);
    Tensor y = device_.embedding(weight_.value, places);
    device_.add(y, x);
    return y;
}

Tensor PositionEmbedding::do_backward_input(const Tensor& dy, Saved& saved) {
    saved.keep("dy", dy);
    return dy;
}

// d_weight[i] += the sum over the batch of dy[i]
void PositionEmbedding::do_backward_weight(Saved& saved) {
    device_.embedding_backward(weight_.gradient, saved.at("places"), saved.at("dy"));
    weight_.accumulated();
}

}  // namespace lockstep
