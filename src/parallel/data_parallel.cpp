#include "src/parallel/data_parallel.hpp"

#include "src/comm/expect.hpp"

namespace lockstep {

// lesson: data-parallel
Tensor data_parallel_gradients(Device& device, Communicator& replicas, Module& model,
                               const Loss& loss, std::span<const MicroBatch> mine) {
    Tensor share = accumulate_gradients(device, model, loss, mine);
    for (Parameter* parameter : model.parameters())
        replicas.all_reduce(parameter->gradient, Reduction::sum).wait();
    return share;
}
// lesson: end

void declare_replicas_of(Communicator& replicas, Module& model, SourceLine at) {
    for (const Parameter* parameter : model.parameters())
        declare_replicas(replicas, parameter->value, parameter->name(), at);
}

}  // namespace lockstep
