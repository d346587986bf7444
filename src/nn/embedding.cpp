#include "src/nn/embedding.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"

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
    device_.random_normal(weight_.value, RandomStream(init.seed, weight_.name()), 0,
                          deviation);
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

}  // namespace lockstep
