#include "src/parallel/data_parallel.hpp"

namespace lockstep {

// lesson: data-parallel
Tensor data_parallel_gradients(Device& device, Communicator& replicas, Module& model,
                               const Loss& loss, std::span<const MicroBatch> mine) {
    Tensor share = accumulate_gradients(device, model, loss, mine);
    for (Parameter* parameter : model.parameters()) {
        replicas.all_reduce(parameter->gradient, Reduction::sum).wait();
        parameter->complete = true;
    }
    return share;
}
// lesson: end

}  // namespace lockstep
