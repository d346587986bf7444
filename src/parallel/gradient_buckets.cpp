#include "src/parallel/gradient_buckets.hpp"

#include <algorithm>

#include "src/core/require.hpp"

namespace lockstep {

GradientBuckets::GradientBuckets(std::vector<Parameter*> parameters,
                                 const BucketSizes& sizes)
    : GradientSync(std::move(parameters)), sizes_(sizes) {
    fill({this->parameters().rbegin(), this->parameters().rend()});
}

// lesson: gradient-buckets
void GradientBuckets::fill(const std::vector<Parameter*>& order) {
    buckets_.clear();
    std::int64_t held = 0;
    for (Parameter* parameter : order) {
        const std::int64_t own =
            parameter->shape().elements() * bytes_of(parameter->dtype());
        const std::int64_t most =
            buckets_.size() <= 1 ? sizes_.first_bytes : sizes_.bytes;
        if (buckets_.empty() || held > most - own ||
            parameter->dtype() != buckets_.back().front()->dtype()) {
            buckets_.emplace_back();
            held = 0;
        }
        held += own;
        buckets_.back().push_back(parameter);
        bucket_of_[parameter] = buckets_.size() - 1;
    }
    missing_.assign(buckets_.size(), 0);
}

void GradientBuckets::begin() {
    next_ = 0;
    arrived_.clear();
    has_arrived_.clear();
    for (std::size_t i = 0; i < buckets_.size(); ++i)
        missing_[i] = buckets_[i].size();
}

void GradientBuckets::ready(Parameter& parameter) {
    std::size_t& missing = missing_[bucket_of_.at(&parameter)];
    require(missing > 0 && !has_arrived(parameter),
            "{} got a gradient after the last of the step, or before begin(): "
            "zero_gradients(model, passes) says how many backward passes a step has",
            parameter.name());
    arrived_.push_back(&parameter);
    has_arrived_.insert(&parameter);
    --missing;
    while (next_ < buckets_.size() && missing_[next_] == 0)
        start(next_++);
}

void GradientBuckets::start_first(std::size_t count) {
    while (next_ < std::min(count, buckets_.size()))
        start(next_++);
}
// lesson: end

}  // namespace lockstep
