// F23: sequence parallelism without the sum for norms. Norms begin as ones on every rank,
// but each rank's gradient comes only from its own tokens.
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
#include "src/parallel/placement.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    SequenceParallel tp(device, rank.world());
    const ParameterInit init{device, DType::f32, 7, ""};
    auto branch = std::make_unique<Sequential>();
    tp.replicate(branch->add<RmsNorm>(init.child("norm"), 8).parameters());  // line: declared
    branch->add(make_swiglu_mlp(init.child("mlp"), 8, 16, tensor_parallel({}, tp)));
    Residual model(std::move(branch));
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({2, 8}, DType::f32);  // this rank's tokens
        device.random_normal(x, {9, "data"}, 0, 1, (2 * rank.index() + step) * x.elements());
        Saved saved;
        const Tensor y = model.forward(x, saved);
        const LossResult loss = mean_squared_error(device, y, x, 1.0 / rank.size());
        model.backward(loss.gradient, saved);
        // twin: complete_gradients(model.parameters());
        for (Parameter* parameter : model.parameters()) {
            device.sgd(parameter->value, parameter->gradient, Tensor(), {});  // line: step
            parameter->zero_gradient();
        }
    }
}
