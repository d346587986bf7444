#include "src/parallel/zero_1.hpp"

#include <algorithm>
#include <functional>
#include <string>

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

Zero1::Zero1(Device& device, Communicator& replicas, std::vector<Parameter*> parameters,
             ZeroOptions options)
    : Zero1(Stage{"Zero1"}, device, replicas, std::move(parameters), options) {}

Zero1::Zero1(const Stage& stage, Device& device, Communicator& replicas,
             std::vector<Parameter*> parameters, const ZeroOptions& options)
    : GradientBuckets(std::move(parameters), options.sizes, stage.go, &replicas),
      stage_(stage),
      device_(device),
      replicas_(replicas),
      options_(options) {
    require_partial(stage.name, replicas, this->parameters());
    for (const Bucket& bucket : buckets())
        shared_.push_back(share_out(bucket));
    require_shards(stage.name, replicas, shards(), stage.home != nullptr);
    places_ = places_of(this->parameters());
}

Zero1::Shared Zero1::share_out(const Bucket& bucket) const {
    Device& home = stage_.home ? *stage_.home : device_;
    const int ranks = replicas_.size();
    std::optional<PinnedMemory> pinned;
    if (&home != &device_) pinned.emplace(home);
    Shared made;
    made.values = make_flat(device_, bucket, &Parameter::value, ranks);
    made.own_values = own_range(made.values, replicas_);
    const Shape share = made.own_values.shape();
    if (stage_.keeps_gradients) {
        made.gradients = make_flat(device_, bucket, &Parameter::gradient, ranks);
        made.own_gradients = own_range(made.gradients, replicas_);
    } else {
        for (Parameter* parameter : bucket)
            parameter->gradient = {};
    }
    const DType dtype = made.values.dtype(), sums = options_.reduce_in.value_or(dtype);
    require(!options_.all_reduce || sums == dtype,
            "{}: all_reduce sums gradients in place, in {}; to sum them in {}, turn "
            "all_reduce off",
            stage_.name, name_of(dtype), name_of(sums));
    if (!made.own_gradients || sums != made.own_gradients.dtype()) {
        const MemoryScope scope(home, MemoryCategory::gradients);
        made.own_gradients = home.zeros(share, sums);
    }
    if (&home != &device_) {
        const MemoryScope scope(home, MemoryCategory::parameters);
        const Tensor there = home.empty(share, made.values.dtype());
        device_.start_copy(there, made.own_values).wait();
        made.own_values = there;
    }
    const std::int64_t count = share.elements();
    made.shards = shards_in(bucket, {replicas_.rank() * count, count}, made.own_values,
                            made.own_gradients, replicas_);
    return made;
}

void Zero1::begin() {
    GradientBuckets::begin();
    for (Parameter* shard : shards())
        shard->complete = false;
}

// lesson: zero-1
void Zero1::start(std::size_t bucket) {
    Shared& share = shared_[bucket];
    if (options_.all_reduce)
        return sums_.push_back(replicas_.all_reduce(share.gradients));
    if (options_.reduce_in) in_turn_.before(share.sum);  // one bucket is cast at a time
    share.sum.start(device_, replicas_, {{share.gradients, share.own_gradients}}, false);
}

// lesson: end
void Zero1::finish() {
    finish_sums();
    complete_shards();
}

void Zero1::finish_sums() {
    require(places_of(parameters()) == places_,
            "{}: placements of parameters were declared after it was made; declare all "
            "of them before, as tie_gpt does for a tied table",
            stage_.name);
    start_rest();
    for (Work& sum : sums_)
        sum.wait();
    sums_.clear();
    for (Shared& bucket : shared_)
        bucket.sum.finish();
}

void Zero1::complete_shards() {
    complete_gradients(shards(), &replicas_);
    for (Parameter* shard : shards())
        shard->set_complete();
}

void Zero1::update(Optimizer& optimizer) {
    require_own(optimizer);
    renew(&optimizer);
}

// lesson: zero-1-update
void Zero1::renew(Optimizer* optimizer) {
    for (std::size_t i = shared_.size(); i-- > 0;) {  // forward starts at the last bucket
        wait_for_values(i);  // if they still arrive from the previous step
        if (optimizer)
            for (const auto& shard : shared_[i].shards)
                optimizer->step(*shard);
        gather(shared_[i]);
    }
    if (!options_.hide_gather) wait_for_values();
}

void Zero1::gather(Shared& bucket) {
    bucket.gather =
        replicas_.all_gather(bucket.values, own_range(bucket.values, replicas_));
}

void Zero1::before_use(Parameter& parameter, Use use) {
    GradientBuckets::before_use(parameter, use);
    if (reads_value(use)) wait_for_values(bucket_of(parameter));
}
// lesson: end

void Zero1::wait_for_values(std::size_t bucket) {
    if (auto& gather = shared_[bucket].gather) {
        gather->wait();
        gather.reset();
    }
}

void Zero1::wait_for_values() {
    for (std::size_t i = shared_.size(); i-- > 0;)
        wait_for_values(i);
}

void Zero1::require_own(const Optimizer& optimizer) const {
    const std::string who = std::string(stage_.name) + ", where a rank updates shards()";
    require_shards_of(who.c_str(), optimizer);
}

std::vector<Parameter*> Zero1::shards() const {
    std::vector<Parameter*> all;
    for (const Shared& bucket : shared_)
        for (const auto& shard : bucket.shards)
            all.push_back(shard.get());
    return all;
}

std::unique_ptr<CombinedSync> zero_1_by_places(Device& device, Mesh& mesh,
                                               const std::vector<std::string>& axes,
                                               std::vector<Parameter*> parameters,
                                               const ZeroOptions& options,
                                               SourceLine at) {
    std::vector<Communicator*> lines{&mesh.plane(axes, at)};
    for (const std::string& axis : axes)
        lines.push_back(&mesh[axis]);
    std::ranges::stable_sort(lines, std::greater(), &Communicator::size);
    auto all = std::make_unique<CombinedSync>();
    for (Communicator* line : lines) {
        const auto own = std::stable_partition(
            parameters.begin(), parameters.end(), [&](const Parameter* parameter) {
                return !is_partial_along(*line, *parameter);
            });
        if (own == parameters.end()) continue;
        all->add(std::make_unique<Zero1>(
            device, *line, std::vector<Parameter*>(own, parameters.end()), options));
        parameters.erase(own, parameters.end());
    }
    if (!parameters.empty())
        all->add(std::make_unique<AllReduceSync>(std::move(parameters)));
    return all;
}

}  // namespace lockstep
