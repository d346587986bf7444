#include "src/parallel/zero1.hpp"

#include <algorithm>

#include "src/core/require.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

namespace {

std::size_t places_of(const std::vector<Parameter*>& parameters) {
    std::size_t places = 0;
    for (const Parameter* parameter : parameters)
        places += parameter->placements.size();
    return places;
}

}  // namespace

// lesson: zero-1
Zero1::Zero1(Device& device, Communicator& replicas, std::vector<Parameter*> parameters)
    : GradientSync(std::move(parameters)), replicas_(replicas) {
    require_partial("Zero1", replicas, this->parameters());
    for (const auto& group : placed_alike(this->parameters(), replicas))
        buffers_.push_back(share_flat(device, group, replicas));
    require(!shards().empty(),
            "Zero1: the parameters have too few elements for {} ranks: rank {} of {} has "
            "none of them",
            replicas.size(), replicas.rank(), replicas.name());
    places_ = places_of(this->parameters());
}

void Zero1::begin() {
    for (Parameter* shard : shards())
        shard->complete = false;
}

void Zero1::finish() {
    require(places_of(parameters()) == places_,
            "Zero1: where parameters lie was said after it was made; say all of it "
            "before, as tie_gpt does for a tied table");
    complete_gradients(parameters(), &replicas_);
    for (const FlatShare& flat : buffers_)
        replicas_.reduce_scatter(own_range(flat.gradients, replicas_), flat.gradients)
            .wait();
    for (Parameter* shard : shards())
        shard->complete = true;
}

void Zero1::update(Optimizer& optimizer) {
    require(std::ranges::is_permutation(optimizer.parameters(), shards()),
            "Zero1: the optimizer is not one of shards(): each rank updates its own "
            "shards, and no other parameter");
    optimizer.step();
    for (const FlatShare& flat : buffers_)
        replicas_.all_gather(flat.values, own_range(flat.values, replicas_)).wait();
}
// lesson: end

std::vector<Parameter*> Zero1::shards() const {
    std::vector<Parameter*> all;
    for (const FlatShare& flat : buffers_)
        for (const auto& shard : flat.shards)
            all.push_back(shard.get());
    return all;
}

}  // namespace lockstep
