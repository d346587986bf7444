#include "src/parallel/rounded_all_reduce.hpp"

#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

// lesson: rounded-all-reduce
RoundedAllReduce::RoundedAllReduce(Device& device, Communicator& replicas,
                                   std::vector<Parameter*> parameters)
    : GradientSync(std::move(parameters)), device_(device), replicas_(replicas) {
    require_partial("RoundedAllReduce", replicas, this->parameters());
    gradients_ = make_flat(device, this->parameters(), &Parameter::gradient);
    require(gradients_.dtype() != DType::bf16,
            "RoundedAllReduce: gradients are bf16 already; GradientBuckets sends them as "
            "they are");
    const MemoryScope scope(device, MemoryCategory::communication);
    rounded_ = device.empty(gradients_.shape(), DType::bf16);
}

void RoundedAllReduce::finish() {
    device_.cast(rounded_, gradients_);
    replicas_.all_reduce(rounded_).wait();
    device_.cast(gradients_, rounded_);
    complete_gradients(parameters(), &replicas_);
    for (Parameter* parameter : parameters())
        parameter->complete = true;
}
// lesson: end

}  // namespace lockstep
