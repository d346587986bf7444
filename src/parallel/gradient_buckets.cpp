#include "src/parallel/gradient_buckets.hpp"

#include <algorithm>

#include "src/core/require.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

GradientBuckets::GradientBuckets(std::vector<Parameter*> parameters,
                                 const BucketSizes& sizes, BucketsGo go,
                                 const Communicator* shared_by)
    : GradientSync(std::move(parameters)), sizes_(sizes), go_(go), shared_by_(shared_by) {
    fill({this->parameters().rbegin(), this->parameters().rend()});
}

// lesson: gradient-buckets
void GradientBuckets::add_buckets(const std::vector<Parameter*>& alike) {
    const std::size_t first = buckets_.size();
    std::int64_t held = 0;
    for (Parameter* parameter : alike) {
        const std::int64_t own =
            parameter->shape().elements() * bytes_of(parameter->dtype());
        const std::int64_t most =
            buckets_.size() <= 1 ? sizes_.first_bytes : sizes_.bytes;
        if (buckets_.size() == first || held > most - own ||
            parameter->dtype() != buckets_.back().front()->dtype()) {
            buckets_.emplace_back();
            held = 0;
        }
        held += own;
        buckets_.back().push_back(parameter);
    }
}

void GradientBuckets::count_from_none() {
    next_ = 0;
    arrived_.clear();
    has_arrived_.clear();
    for (std::size_t i = 0; i < buckets_.size(); ++i)
        missing_[i] = buckets_[i].size();
}

void GradientBuckets::arrive(Parameter& parameter) {
    std::size_t& missing = missing_[bucket_of(parameter)];
    require(missing > 0 && !has_arrived(parameter),
            "{} got a gradient after the step's last one, or before begin(); call "
            "zero_gradients(model, passes) with the number of backward passes in a step",
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

void GradientBuckets::fill(const std::vector<Parameter*>& order) {
    buckets_.clear();
    if (!shared_by_) {
        add_buckets(order);
    } else {
        for (const auto& alike : placed_alike(order, *shared_by_))
            add_buckets(alike);
        std::ranges::stable_sort(buckets_, {}, [&](const Bucket& bucket) {
            return std::ranges::find(order, bucket.back());
        });
    }
    missing_.assign(buckets_.size(), 0);
    for (std::size_t i = 0; i < buckets_.size(); ++i)
        for (Parameter* parameter : buckets_[i])
            bucket_of_[parameter] = i;
}

void GradientBuckets::begin() {
    count_from_none();
}

void GradientBuckets::ready(Parameter& parameter) {
    if (go_ == BucketsGo::each_step) arrive(parameter);
}

void GradientBuckets::before_use(Parameter& parameter, Use use) {
    if (go_ != BucketsGo::each_pass || !adds_gradient(use)) return;
    if (!has_arrived(parameter)) return;
    start_rest();  // the previous pass ended without some gradients
    count_from_none();
}

void GradientBuckets::passed(Parameter& parameter) {
    if (go_ == BucketsGo::each_pass) arrive(parameter);
}

}  // namespace lockstep
