#include "src/parallel/rounded_all_reduce.hpp"

#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

// lesson: rounded-all-reduce
RoundedAllReduce::RoundedAllReduce(Device& device, Communicator& replicas,
                                   std::vector<Parameter*> parameters,
                                   const BucketSizes& sizes)
    : GradientBuckets(std::move(parameters), sizes),
      device_(device),
      replicas_(replicas) {
    require_partial("RoundedAllReduce", replicas, this->parameters());
    for (const Bucket& bucket : buckets()) {
        const Tensor gradients = make_flat(device, bucket, &Parameter::gradient);
        require(gradients.dtype() != DType::bf16,
                "RoundedAllReduce: gradients are bf16 already; BucketedDataParallel "
                "sends them as they are");
        const MemoryScope scope(device, MemoryCategory::communication);
        flat_.push_back({gradients, device.empty(gradients.shape(), DType::bf16)});
    }
}

void RoundedAllReduce::start(std::size_t bucket) {
    Flat& flat = flat_[bucket];
    device_.cast(flat.rounded, flat.gradients);
    flat.sum = replicas_.all_reduce(flat.rounded);
}

void RoundedAllReduce::finish() {
    start_rest();
    for (Flat& flat : flat_) {
        flat.sum->wait();
        device_.cast(flat.gradients, flat.rounded);
    }
    complete_gradients(parameters(), &replicas_);
    for (Parameter* parameter : parameters())
        parameter->complete = true;
}
// lesson: end

}  // namespace lockstep
