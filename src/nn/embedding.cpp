#include "src/nn/embedding.hpp"

#include "src/core/require.hpp"
#include "src/nn/part.hpp"

namespace lockstep {

Shape table_shape(const ParameterInit& init, std::int64_t vocabulary,
                  std::int64_t width) {
    require(vocabulary > 0 && width > 0,
            "{}: an embedding of {} rows and {} columns; both must be positive",
            init.child("weight").name, vocabulary, width);
    return {vocabulary, width};
}

Embedding::Embedding(const ParameterInit& init, std::int64_t vocabulary,
                     std::int64_t width, double deviation)
    : device_(init.device),
      weight_(init, "weight", table_shape(init, vocabulary, width)) {
    start_normal(weight_, init.seed, deviation);
}

// y[i] (width) = table[ids[i]]
Tensor Embedding::do_forward(const Tensor& ids, Saved& saved) {
    saved.keep("ids", ids);
    return device_.embedding(weight_.value, ids);
}

Tensor Embedding::do_backward_input(const Tensor& dy, Saved& saved) {
    saved.keep("dy", dy);
    return {};
}

// d_table[ids[i]] += dy[i]
void Embedding::do_backward_weight(Saved& saved) {
    device_.embedding_backward(weight_.gradient, saved.at("ids"), saved.at("dy"));
    weight_.accumulated();
}

PositionEmbedding::PositionEmbedding(const ParameterInit& init, std::int64_t context,
                                     std::int64_t width, TokenDeal deal,
                                     TokenDeal stretch,
                                     std::shared_ptr<const RowPlaces> given)
    : device_(init.device),
      weight_(init, "weight", table_shape(init, context, width)),
      deal_(deal),
      stretch_(stretch),
      given_(std::move(given)) {
    start_normal(weight_, init.seed);
}

Tensor PositionEmbedding::places_of(const Tensor& x, const RowPlaces& given) {
    require(x.shape().dimensions() == 3,
            "{} got x of shape {}; (sequence, batch, width) is expected", weight_.name(),
            x.shape());
    const std::int64_t length = x.shape()[0];
    const std::int64_t batch = x.shape()[1];
    const Shape shape{length, batch};
    if (given) {
        require(given->elements() == shape.elements(),
                "{} got x of shape {}, and {} positions; one per row is expected",
                weight_.name(), x.shape(), given->elements());
        return given->reshaped(shape);
    }
    const std::int64_t share = stretch_.ranks * length;
    require(deal_.ranks * share <= weight_.shape()[0],
            "{} has {} positions, but the sequence needs {}", weight_.name(),
            weight_.shape()[0], deal_.ranks * share);
    if (places_ && places_.shape() == shape) return places_;
    const TokenRows tokens = deal_.own(share), here = stretch_.own(length);
    HostTensor places(shape, DType::i32);
    for (std::int64_t i = 0; i < places.elements(); ++i)
        places.set(i, static_cast<double>(tokens[here[i / batch]]));
    const MemoryScope scope(device_, MemoryCategory::workspace);
    return places_ = device_.upload(places);
}

Tensor PositionEmbedding::do_forward(const Tensor& x, Saved& saved) {
    const Tensor places =
        places_of(x, saved.keep_state("given", given_ ? *given_ : std::nullopt));
    saved.keep("places", places);
    Tensor y = device_.embedding(weight_.value, places);
    device_.add(y, x);
    return y;
}

Tensor PositionEmbedding::do_backward_input(const Tensor& dy, Saved& saved) {
    saved.keep("dy", dy);
    return dy;
}

// d_weight[i] += the sum of dy[i] over the batch
void PositionEmbedding::do_backward_weight(Saved& saved) {
    device_.embedding_backward(weight_.gradient, saved.at("places"), saved.at("dy"));
    weight_.accumulated();
}

}  // namespace lockstep
