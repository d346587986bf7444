#include "src/parallel/zero1.hpp"

#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

// lesson: zero-1
Zero1::Zero1(Device& device, Communicator& replicas, std::vector<Parameter*> parameters)
    : GradientSync(std::move(parameters)),
      replicas_(replicas),
      values_(make_flat(device, this->parameters(), &Parameter::value, replicas.size())),
      gradients_(
          make_flat(device, this->parameters(), &Parameter::gradient, replicas.size())),
      shard_("shard", own(values_), own(gradients_)) {
    require_partial("Zero1", replicas, this->parameters());
}

Tensor Zero1::own(const Tensor& flat) const {
    const std::int64_t share = flat.elements() / replicas_.size();
    return flat.slice(replicas_.rank() * share, share);
}

void Zero1::finish() {
    complete_gradients(parameters(), &replicas_);
    replicas_.reduce_scatter(shard_.gradient, gradients_).wait();
}

void Zero1::update(Optimizer& optimizer) {
    optimizer.step();
    replicas_.all_gather(values_, shard_.value).wait();
}
// lesson: end

}  // namespace lockstep
