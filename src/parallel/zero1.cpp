#include "src/parallel/zero1.hpp"

#include <algorithm>
#include <iterator>

#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"
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
    for (const auto& group : placed_alike(this->parameters(), replicas)) {
        const int n = replicas.size();
        buffers_.push_back({make_flat(device, group, &Parameter::value, n),
                            make_flat(device, group, &Parameter::gradient, n)});
        const Flat& flat = buffers_.back();
        std::ranges::move(shard_flat(group, flat.values, flat.gradients, replicas),
                          std::back_inserter(shards_));
    }
    require(!shards_.empty(),
            "Zero1: the parameters have too few elements for {} ranks: rank {} of {} has "
            "none of them",
            replicas.size(), replicas.rank(), replicas.name());
    places_ = places_of(this->parameters());
}

void Zero1::begin() {
    for (const auto& shard : shards_)
        shard->complete = false;
}

void Zero1::finish() {
    require(places_of(parameters()) == places_,
            "Zero1: where parameters lie was said after it was made; say all of it "
            "before, as tie_gpt does for a tied table");
    complete_gradients(parameters(), &replicas_);
    for (const Flat& flat : buffers_)
        replicas_.reduce_scatter(own_range(flat.gradients, replicas_), flat.gradients)
            .wait();
    for (const auto& shard : shards_)
        shard->complete = true;
}

void Zero1::update(Optimizer& optimizer) {
    require(std::ranges::is_permutation(optimizer.parameters(), shards()),
            "Zero1: the optimizer is not one of shards(): each rank updates its own "
            "shards, and no other parameter");
    optimizer.step();
    for (const Flat& flat : buffers_)
        replicas_.all_gather(flat.values, own_range(flat.values, replicas_)).wait();
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
