#include "src/nn/mlp.hpp"

#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"

namespace lockstep {

std::unique_ptr<Sequential> make_mlp(const ParameterInit& init, std::int64_t hidden,
                                     std::int64_t inner) {
    auto mlp = std::make_unique<Sequential>();
    mlp->add<Linear>(init.child("c_fc"), hidden, inner);    // (…, inner)
    mlp->add<Gelu>(init.device);                            // (…, inner)
    mlp->add<Linear>(init.child("c_proj"), inner, hidden);  // (…, hidden)
    return mlp;
}

std::unique_ptr<Sequential> make_swiglu_mlp(const ParameterInit& init,
                                            std::int64_t hidden, std::int64_t inner) {
    auto mlp = std::make_unique<Sequential>();
    mlp->add<Linear>(init.child("gate_up_proj"), hidden, 2 * inner, /*bias=*/false);
    mlp->add<Swiglu>(init.device);  // (…, inner)
    mlp->add<Linear>(init.child("down_proj"), inner, hidden, /*bias=*/false);
    return mlp;
}

}  // namespace lockstep
