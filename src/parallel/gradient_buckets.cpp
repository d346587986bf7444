#include "src/parallel/gradient_buckets.hpp"

#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

// lesson: gradient-buckets
GradientBuckets::GradientBuckets(Device& device, Communicator& replicas,
                                 std::vector<Parameter*> parameters, std::int64_t bytes)
    : GradientSync(std::move(parameters)), replicas_(replicas) {
    require_partial("GradientBuckets", replicas, this->parameters());
    std::int64_t held = 0;
    for (std::size_t i = this->parameters().size(); i-- > 0;) {
        Parameter* parameter = this->parameters()[i];
        held += parameter->gradient.bytes();
        if (buckets_.empty() || held > bytes) {
            buckets_.emplace_back();
            held = parameter->gradient.bytes();
        }
        buckets_.back().members.push_back(parameter);
        bucket_of_[parameter] = buckets_.size() - 1;
    }
    for (Bucket& bucket : buckets_)
        bucket.gradients = make_flat(device, bucket.members, &Parameter::gradient);
}

void GradientBuckets::begin() {
    next_ = 0;
    for (Bucket& bucket : buckets_)
        bucket.missing = bucket.members.size();
}

void GradientBuckets::ready(Parameter& parameter) {
    require(buckets_[bucket_of_.at(&parameter)].missing-- > 0,
            "{} got a gradient after the last of the step, or before begin(): "
            "zero_gradients(model, passes) says how many backward passes a step has",
            parameter.name());
    start(/*all=*/false);
}

void GradientBuckets::start(bool all) {
    for (; next_ < buckets_.size() && (all || buckets_[next_].missing == 0); ++next_)
        buckets_[next_].work = replicas_.all_reduce(buckets_[next_].gradients);
}

void GradientBuckets::finish() {
    start(/*all=*/true);
    for (Bucket& bucket : buckets_)
        bucket.work->wait();
    complete_gradients(parameters(), &replicas_);
    for (Parameter* parameter : parameters())
        parameter->complete = true;
}
// lesson: end

}  // namespace lockstep
