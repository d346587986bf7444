#include "src/parallel/zero1.hpp"

#include <algorithm>
#include <iterator>

#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

// lesson: zero-1
Zero1::Zero1(Device& device, Communicator& replicas, std::vector<Parameter*> parameters)
    : GradientSync(std::move(parameters)), replicas_(replicas) {
    require_partial("Zero1", replicas, this->parameters());
    for (const auto& group : placed_alike(this->parameters(), replicas)) {
        const int n = replicas.size();
        buffers_.push_back({make_flat(device, group, &Parameter::value, n),
                            make_flat(device, group, &Parameter::gradient, n)});
        const Flat& flat = buffers_.back();
        std::ranges::move(shard_flat(group, flat.values, flat.gradients, replicas),
                          std::back_inserter(shards_));
    }
    require(!shards_.empty(),
            "Zero1: too few elements for the {} ranks of {}: rank {} gets none",
            replicas.size(), replicas.name(), replicas.rank());
}

Tensor Zero1::own(const Tensor& flat) const {
    const std::int64_t share = flat.elements() / replicas_.size();
    return flat.slice(replicas_.rank() * share, share);
}

void Zero1::begin() {
    for (const auto& shard : shards_)
        shard->complete = false;
}

void Zero1::finish() {
    complete_gradients(parameters(), &replicas_);
    for (const Flat& flat : buffers_)
        replicas_.reduce_scatter(own(flat.gradients), flat.gradients).wait();
    for (const auto& shard : shards_)
        shard->complete = true;
}

void Zero1::update(Optimizer& optimizer) {
    require(std::ranges::is_permutation(optimizer.parameters(), shards()),
            "Zero1: the optimizer is not one of shards(): each rank updates its own "
            "shards, and no other parameter");
    optimizer.step();
    for (const Flat& flat : buffers_)
        replicas_.all_gather(flat.values, own(flat.values)).wait();
}
// lesson: end

std::vector<Parameter*> Zero1::shards() const {
    std::vector<Parameter*> shards;
    shards.reserve(shards_.size());
    for (const auto& shard : shards_)
        shards.push_back(shard.get());
    return shards;
}

}  // namespace lockstep
