#include "src/nn/flatten.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

Tensor Flatten::do_forward(const Tensor& x, Saved& saved) {
    require(x.shape().dimensions() > 0,
            "Flatten got a scalar; it needs a first dimension to keep");
    saved.keep("shape of x", Tensor(nullptr, x.shape(), x.dtype()));
    std::int64_t rest = 1;
    for (int d = 1; d < x.shape().dimensions(); ++d)
        rest *= x.shape()[d];
    return x.reshaped({x.shape()[0], rest});
}

Tensor Flatten::do_backward_input(const Tensor& dy, Saved& saved) {
    return dy.reshaped(saved.at("shape of x").shape());
}

}  // namespace lockstep
