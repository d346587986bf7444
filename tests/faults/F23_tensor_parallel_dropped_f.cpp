// F23: tensor parallelism without f. In backward each rank uses its own part of dx as if
// this part were the whole.
//
// finds: F23
// check: full
// ranks: 2, 4
// parties: 0 | 1

#include "src/comm/rank.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/norm.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

class Regions : public TensorParallel {
    using TensorParallel::TensorParallel;
    Arriving enter_backward(const Tensor& dx) override {
        return {dx, dx, std::nullopt};  // twin: return TensorParallel::enter_backward(dx);
    }
};

void program(Rank& rank) {
    Device& device = rank.device();
    Regions tp(device, rank.world());
    const ParameterInit init{device, DType::f32, 7, ""};
    Sequential model;
    tp.replicate(model.add<LayerNorm>(init.child("norm"), 8).parameters());  // line: declared
    model.add(make_mlp(init.child("mlp"), 8, 16, tensor_parallel({}, tp)));
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({4, 8}, DType::f32);  // the same on all ranks
        device.random_normal(x, {9, "data"}, 0, 1, step * x.elements());
        Saved saved;
        const Tensor y = model.forward(x, saved);
        model.backward(mean_squared_error(device, y, x).gradient, saved);
        for (Parameter* parameter : model.parameters()) {
            device.sgd(parameter->value, parameter->gradient, Tensor(), {});  // line: step
            parameter->zero_gradient();
        }
    }
}
