// F26: data parallelism with buckets. After the first step each rank puts the buckets
// into the order in which its own gradients came. Rank 0 runs the two towers in the
// opposite order, so one tower's gradient is added to the other tower's.
//
// finds: F26
// check: cheap
// ranks: 4, 256
// parties: 0 | rest

#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const ParameterInit init{device, DType::f32, 7, ""};
    Linear words(init.child("words"), 4, 4, false);
    Linear pictures(init.child("pictures"), 4, 4, false);
    std::vector<Parameter*> order{&words.weight(), &pictures.weight()};
    std::vector<Parameter*> arrived;
    for (Parameter* parameter : order)
        parameter->on_gradient([&](Parameter& ready) { arrived.push_back(&ready); });
    for (int step = 0; step < 3; ++step) {
        zero_gradients(words);
        zero_gradients(pictures);
        const Tensor x = device.zeros({2, 4}, DType::f32);
        device.fill(x, step + rank.index());
        std::vector<Linear*> towers{&words, &pictures};
        if (rank.index() == 0) std::swap(towers[0], towers[1]);
        arrived.clear();
        for (Linear* tower : towers) {
            Saved saved;
            const Tensor y = tower->forward(x, saved);
            tower->backward(y, saved);
        }
        for (const Parameter* parameter : order)
            rank.world().all_reduce(parameter->gradient).wait();  // line: reduce
        for (const Parameter* parameter : order)
            device.sgd(parameter->value, parameter->gradient, Tensor(), {});
        order = arrived;  // twin:
    }
}
