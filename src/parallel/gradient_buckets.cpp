#include "src/parallel/gradient_buckets.hpp"

#include <algorithm>

#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

// lesson: gradient-buckets
GradientBuckets::GradientBuckets(Device& device, Communicator& replicas,
                                 std::vector<Parameter*> parameters, std::int64_t bytes)
    : GradientSync(std::move(parameters)), replicas_(replicas) {
    require_partial("GradientBuckets", replicas, this->parameters());
    std::vector<Parameter*> members;
    std::int64_t held = 0;
    const auto close = [&] {
        if (members.empty()) return;
        for (const Parameter* member : members)
            bucket_of_[member] = buckets_.size();
        buckets_.push_back({make_flat(device, members, &Parameter::gradient),
                            static_cast<int>(members.size())});
        members.clear();
        held = 0;
    };
    std::vector<Parameter*> last_first = this->parameters();
    std::reverse(last_first.begin(), last_first.end());
    for (Parameter* parameter : last_first) {
        if (held + parameter->gradient.bytes() > bytes) close();
        members.push_back(parameter);
        held += parameter->gradient.bytes();
    }
    close();
}

void GradientBuckets::begin() {
    next_ = 0;
    for (Bucket& bucket : buckets_)
        bucket.missing = bucket.parameters;
}

void GradientBuckets::ready(Parameter& parameter) {
    int& missing = buckets_[bucket_of_.at(&parameter)].missing;
    require(missing > 0,
            "{} got a gradient after the last of the step, or before begin(): "
            "zero_gradients(model, passes) says how many backward passes a step has",
            parameter.name());
    --missing;
    while (next_ < buckets_.size() && buckets_[next_].missing == 0)
        start_next();
}

void GradientBuckets::start_next() {
    Bucket& bucket = buckets_[next_++];
    bucket.work = replicas_.all_reduce(bucket.gradients);
}

void GradientBuckets::finish() {
    while (next_ < buckets_.size())  // gradients that backward never reached
        start_next();
    for (Bucket& bucket : buckets_)
        bucket.work->wait();
    complete_gradients(parameters(), &replicas_);
    for (Parameter* parameter : parameters())
        parameter->complete = true;
}
// lesson: end

}  // namespace lockstep
