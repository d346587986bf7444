#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "src/parallel/train_step.hpp"

namespace lockstep {

/// The sizes of buckets. A bucket ends before it would exceed its limit in bytes, and
/// before a parameter of another type. It has at least one parameter.
struct BucketSizes {
    std::int64_t bytes = std::int64_t{25} << 20;
    /// The first bucket's limit. It is small, so that this bucket is full early.
    std::int64_t first_bytes = std::int64_t{1} << 20;

    /// One bucket for everything: nothing is sent before the end of backward.
    static constexpr BucketSizes all_in_one() { return {INT64_MAX, INT64_MAX}; }
};

/// When buckets are sent: once a step, in its last micro-batch, or in each backward pass.
enum class BucketsGo : std::uint8_t { each_step, each_pass };

/// A strategy that sends gradients while backward runs. Gradients lie in buckets, and a
/// bucket is sent as soon as its last gradient is ready (Li et al. 2020, PyTorch
/// Distributed, 2006.15704, section 3.2).
///
/// All ranks start buckets in the same order: a full bucket waits for the buckets before
/// it. If each bucket started as soon as it is full, ranks that take different paths
/// through the model would call collectives in different orders.
class GradientBuckets : public GradientSync {
  public:
    using Bucket = std::vector<Parameter*>;

    const std::vector<Bucket>& buckets() const { return buckets_; }
    void begin() override;

  protected:
    /// Fills buckets with the parameters in reverse order, as backward reaches them. If
    /// buckets are sharded, `shared_by` is the line that shards them; all parameters of a
    /// bucket then have copies along the same other lines (placed_alike).
    GradientBuckets(std::vector<Parameter*> parameters, const BucketSizes& sizes,
                    BucketsGo go = BucketsGo::each_step,
                    const Communicator* shared_by = nullptr);

    /// Fills the buckets again, in the given order. Call it only between steps.
    void fill(const std::vector<Parameter*>& order);
    /// Called when the parameter's gradient of the step is complete. Starts the buckets
    /// that are now full. Throws UsageError for a second call in a step.
    void ready(Parameter& parameter) override;
    /// Like ready(), for BucketsGo::each_pass. A use that adds to an arrived gradient
    /// begins a new pass; before_use() then starts the remaining buckets.
    void passed(Parameter& parameter) override;
    void before_use(Parameter& parameter, Use use) override;
    /// Starts the first `count` buckets, except buckets that are started already. They
    /// need not be full: a gradient without any terms is zero.
    void start_first(std::size_t count);
    void start_rest() { start_first(buckets_.size()); }
    /// Parameters whose gradients arrived in this step, or pass, in order of arrival.
    const std::vector<Parameter*>& arrived() const { return arrived_; }
    bool has_arrived(const Parameter& parameter) const {
        return has_arrived_.count(&parameter) > 0;
    }
    std::size_t bucket_of(const Parameter& parameter) const {
        return bucket_of_.at(&parameter);
    }

  private:
    /// Starts to send the bucket's gradients.
    virtual void start(std::size_t bucket) = 0;
    void count_from_none();
    void arrive(Parameter& parameter);
    void add_buckets(const std::vector<Parameter*>& alike);

    BucketSizes sizes_;
    BucketsGo go_;
    const Communicator* shared_by_;
    std::vector<Bucket> buckets_;
    std::unordered_map<const Parameter*, std::size_t> bucket_of_;
    std::vector<std::size_t> missing_;  ///< gradients that each bucket still waits for
    std::vector<Parameter*> arrived_;
    std::unordered_set<const Parameter*> has_arrived_;
    std::size_t next_ = 0;  ///< the next bucket to start
};

}  // namespace lockstep
