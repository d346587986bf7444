#include "src/parallel/bucketed_data_parallel.hpp"

#include <algorithm>

#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

// lesson: bucketed-data-parallel
BucketedDataParallel::BucketedDataParallel(Device& device, Communicator& replicas,
                                           std::vector<Parameter*> parameters,
                                           BucketOptions options)
    : GradientBuckets(std::move(parameters), options.sizes),
      device_(device),
      replicas_(replicas),
      options_(options) {
    require_partial("BucketedDataParallel", replicas, this->parameters());
    if (options_.broadcast) {
        Group group = replicas_.group();
        for (const Parameter* parameter : this->parameters())
            group.broadcast(parameter->value, 0);
        group.start().wait();
    }
    lay_out();
}

void BucketedDataParallel::lay_out() {
    gradients_.clear();
    for (const Bucket& bucket : buckets())
        gradients_.push_back(make_flat(device_, bucket, &Parameter::gradient));
}

void BucketedDataParallel::begin() {
    if (++steps_ == 2 && options_.rebuild) rebuild();
    GradientBuckets::begin();
    works_.clear();
    all_forwarded_ = false;
    uses_.clear();  // drops the uses that an evaluation between steps counted
}

void BucketedDataParallel::start(std::size_t bucket) {
    works_.push_back(replicas_.all_reduce(gradients_[bucket]));
}

void BucketedDataParallel::finish() {
    start_rest();
    for (Work& work : works_)
        work.wait();
    complete_gradients(parameters(), &replicas_);
    for (Parameter* parameter : parameters())
        parameter->complete = true;
}
// lesson: end

// lesson: rebuild-buckets
void BucketedDataParallel::rebuild() {
    std::vector<Parameter*> order = arrived();
    for (const Bucket& bucket : buckets())
        for (Parameter* parameter : bucket)
            if (!has_arrived(*parameter)) order.push_back(parameter);
    const std::vector<Parameter*>& all = parameters();
    HostTensor places({static_cast<std::int64_t>(all.size())}, DType::i32);
    for (std::size_t i = 0; i < order.size(); ++i)
        places.set(static_cast<std::int64_t>(i),
                   static_cast<double>(std::ranges::find(all, order[i]) - all.begin()));
    const Tensor rank_0s = device_.upload(places);
    replicas_.broadcast(rank_0s, 0).wait();
    if (device_.has_numbers()) places = device_.download(rank_0s);
    for (std::size_t i = 0; i < order.size(); ++i)
        order[i] = all[static_cast<std::size_t>(places.at(static_cast<std::int64_t>(i)))];
    fill(order);
    lay_out();
}
// lesson: end

// lesson: find-unused
void BucketedDataParallel::before_use(Parameter& parameter, Use use) {
    if (use == Use::forward) ++uses_[&parameter].forward;
}

void BucketedDataParallel::after_use(Parameter& parameter, Use use) {
    if (!adds_gradient(use)) return;
    ++uses_[&parameter].backward;
    if (all_forwarded_) settle_if_done(parameter);
}

void BucketedDataParallel::settle_if_done(Parameter& parameter) {
    const Uses& uses = uses_[&parameter];
    if (uses.backward == uses.forward && !has_arrived(parameter))
        GradientBuckets::ready(parameter);
}

void BucketedDataParallel::ready(Parameter& parameter) {
    GradientBuckets::ready(parameter);
    if (!options_.find_unused || all_forwarded_) return;
    all_forwarded_ = true;  // the first gradient is complete: all forwards are done
    for (Parameter* other : parameters())
        settle_if_done(*other);
}
// lesson: end

}  // namespace lockstep
