#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "src/parallel/train_step.hpp"

namespace lockstep {

/// How large buckets are. A bucket ends before it would exceed its bytes, and where
/// parameters have another type; it holds a parameter at least.
struct BucketSizes {
    std::int64_t bytes = std::int64_t{25} << 20;
    /// Of the first one, which is small so that it is full early.
    std::int64_t first_bytes = std::int64_t{1} << 20;

    /// One bucket for everything: nothing goes before backward's end.
    static constexpr BucketSizes all_in_one() { return {INT64_MAX, INT64_MAX}; }
};

/// Buckets go once a step, with the last of its micro-batches, or in each backward pass.
enum class BucketsGo : std::uint8_t { each_step, each_pass };

/// A strategy that sends gradients while backward goes on: they lie in buckets, and a
/// bucket goes as soon as the last of its gradients is there (Li et al. 2020, PyTorch
/// Distributed, 2006.15704, section 3.2).
///
/// Buckets are started in one order, the same on all ranks: one that is full early waits
/// for those before it. Ranks that started them as they fill would call collectives in
/// different orders as soon as one of them takes another way through the model.
class GradientBuckets : public GradientSync {
  public:
    using Bucket = std::vector<Parameter*>;

    const std::vector<Bucket>& buckets() const { return buckets_; }
    void begin() override;

  protected:
    /// Fills buckets with the parameters, the last one first, since backward comes to it
    /// first. If a line is given, which shares buckets out, the parameters of a bucket
    /// are alike along the same other lines (placed_alike).
    GradientBuckets(std::vector<Parameter*> parameters, const BucketSizes& sizes,
                    BucketsGo go = BucketsGo::each_step,
                    const Communicator* shared_by = nullptr);

    /// Fills them anew, in that order; between steps.
    void fill(const std::vector<Parameter*>& order);
    /// The parameter's gradient is that of the step; starts the buckets that it makes
    /// full. Throws UsageError if it came before.
    void ready(Parameter& parameter) override;
    /// The same, if buckets go in each pass; a use that adds to a gradient which has come
    /// begins the next pass, and starts what the one before left.
    void passed(Parameter& parameter) override;
    void before_use(Parameter& parameter, Use use) override;
    /// Starts those that are left of the first `count`, full or not: a gradient that
    /// nobody added to is zero.
    void start_first(std::size_t count);
    void start_rest() { start_first(buckets_.size()); }
    /// Parameters whose gradients came in this step, or pass, in that order.
    const std::vector<Parameter*>& arrived() const { return arrived_; }
    bool has_arrived(const Parameter& parameter) const {
        return has_arrived_.count(&parameter) > 0;
    }
    std::size_t bucket_of(const Parameter& parameter) const {
        return bucket_of_.at(&parameter);
    }

  private:
    /// Sends the bucket's gradients on their way.
    virtual void start(std::size_t bucket) = 0;
    void count_from_none();
    void arrive(Parameter& parameter);
    void add_buckets(const std::vector<Parameter*>& alike);

    BucketSizes sizes_;
    BucketsGo go_;
    const Communicator* shared_by_;
    std::vector<Bucket> buckets_;
    std::unordered_map<const Parameter*, std::size_t> bucket_of_;
    std::vector<std::size_t> missing_;  ///< gradients of each bucket
    std::vector<Parameter*> arrived_;
    std::unordered_set<const Parameter*> has_arrived_;
    std::size_t next_ = 0;  ///< to be started
};

}  // namespace lockstep
