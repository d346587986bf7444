// F23: tensor parallelism without g. After a row-parallel layer each rank uses its own
// terms as if these were the sum.
//
// finds: F23
// check: full
// ranks: 2, 4
// parties: 0 | 1

#include "src/comm/rank.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/norm.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

class Regions : public TensorParallel {
    using TensorParallel::TensorParallel;
    Tensor leave(const Tensor& partial) override {
        return partial;  // twin: return TensorParallel::leave(partial);
    }
};

void program(Rank& rank) {
    Device& device = rank.device();
    Regions tp(device, rank.world());
    const ParameterInit init{device, DType::f32, 7, ""};
    Sequential model;
    model.add(make_swiglu_mlp(init.child("mlp"), 8, 16, tensor_parallel({}, tp)));
    tp.replicate(model.add<RmsNorm>(init.child("norm"), 8).parameters());  // line: declared
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
