#include "src/parallel/plain_zero_1.hpp"

#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

PlainZero1::PlainZero1(Device& device, Communicator& replicas,
                       std::vector<Parameter*> parameters)
    : GradientSync(std::move(parameters)), replicas_(replicas) {
    require_partial("PlainZero1", replicas, this->parameters());
    require(placed_alike(this->parameters(), replicas).size() <= 1,
            "PlainZero1: its parameters have different placements along other lines; use "
            "Zero1, which has a bucket for each placement");
    const int ranks = replicas.size();
    values_ = make_flat(device, this->parameters(), &Parameter::value, ranks);
    gradients_ = make_flat(device, this->parameters(), &Parameter::gradient, ranks);
    const Tensor own = own_range(values_, replicas);
    const std::int64_t count = own.elements();
    shards_ = shards_in(this->parameters(), {replicas.rank() * count, count}, own,
                        own_range(gradients_, replicas), replicas);
    require_shards("PlainZero1", replicas, shards(), /*on_host=*/false);
}

std::vector<Parameter*> PlainZero1::shards() const {
    std::vector<Parameter*> all;
    for (const auto& shard : shards_)
        all.push_back(shard.get());
    return all;
}

void PlainZero1::begin() {
    for (const auto& shard : shards_)
        shard->complete = false;
}

// Each rank gets the summed gradients of its range.
void PlainZero1::finish() {
    replicas_.reduce_scatter(own_range(gradients_, replicas_), gradients_).wait();
    complete_gradients(shards(), &replicas_);
    for (const auto& shard : shards_)
        shard->set_complete();
}

// Each rank updates its range and sends it to all.
void PlainZero1::update(Optimizer& optimizer) {
    require_shards_of("PlainZero1, where a rank updates shards()", optimizer);
    GradientSync::update(optimizer);
    send_values();
}

void PlainZero1::send_values() {
    replicas_.all_gather(values_, own_range(values_, replicas_)).wait();
}

}  // namespace lockstep
