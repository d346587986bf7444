#pragma once

#include <unordered_map>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/parallel/gradient_buckets.hpp"

namespace lockstep {

struct BucketOptions {
    BucketSizes sizes{};
    /// Broadcasts rank 0's values at the start: S bytes, once.
    bool broadcast = true;
    /// Rebuilds the buckets after the first step, in the order in which rank 0's
    /// gradients became ready. Costs one broadcast (one number per parameter), and the
    /// host waits for it. After a resume from a checkpoint, the first step uses the
    /// original order again, so its sums may be rounded differently.
    bool rebuild = true;
    /// When the first gradient is ready, finds the parameters that get no gradient in
    /// this step. Their buckets then need not wait for the end of backward. If false, the
    /// step is also correct, but slower if parts of the model are skipped.
    bool find_unused = false;
};

/// Data parallelism that all-reduces gradients while backward runs, bucket by bucket, as
/// PyTorch's DistributedDataParallel does (Li et al. 2020, 2006.15704, sections 3 and 4).
///
/// Sends 2(n-1)/n S bytes, like one all-reduce per parameter, but in one message chain
/// per bucket. The last bucket has the first layer's gradients. It is sent when backward
/// has ended, so its messages are exposed. Gradients are views of the buckets, so no step
/// copies gradients and no second buffer is needed. (Only building or rebuilding the
/// buckets copies them.) To accumulate gradients, pass all micro-batches of a step to
/// train_step. If you run the micro-batches yourself, pass their number to
/// zero_gradients(model, passes); in PyTorch you would use no_sync().
///
/// Differs from PyTorch: sums weighted gradients instead of dividing by n. A bucket ends
/// before it would exceed its limit, not after. If some parameters get no gradient, the
/// step is still correct, as finish() reduces the remaining buckets; PyTorch raises an
/// error or hangs. With find_unused such a step is faster, and buckets are still rebuilt.
/// Tensors that are not parameters, such as running statistics, are not broadcast.
///
/// If a parameter's gradient is also partial along other lines, finish() sums it along
/// these lines, too.
class BucketedDataParallel : public GradientBuckets {
  public:
    /// Every rank of `replicas` makes the same buckets. Throws UsageError if the
    /// parameters are not known to be partial along `replicas`, or if a gradient has
    /// another type than the rest of its bucket.
    BucketedDataParallel(Device& device, Communicator& replicas,
                         std::vector<Parameter*> parameters, BucketOptions options = {});
    void begin() override;
    void finish() override;

  private:
    void start(std::size_t bucket) override;
    void ready(Parameter& parameter) override;
    void before_use(Parameter& parameter, Use use) override;
    void after_use(Parameter& parameter, Use use) override;
    void lay_out();
    void rebuild();

    /// How often forward used a parameter in this step, and how many of these uses have
    /// added their part of the gradient.
    struct Uses {
        int forward = 0;
        int backward = 0;
    };
    void settle_if_done(Parameter& parameter);

    Device& device_;
    Communicator& replicas_;
    BucketOptions options_;
    std::vector<Tensor> gradients_;  ///< by bucket
    std::vector<Work> works_;
    std::unordered_map<const Parameter*, Uses> uses_;
    bool all_forwarded_ = false;
    int steps_ = 0;  ///< steps begun so far
};

}  // namespace lockstep
