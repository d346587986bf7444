#pragma once

#include <unordered_map>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/parallel/gradient_buckets.hpp"

namespace lockstep {

struct BucketOptions {
    BucketSizes sizes{};
    /// All begin with rank 0's values: S bytes, once.
    bool broadcast = true;
    /// From the second step on buckets are filled in the order in which rank 0's
    /// gradients came in the first one: one broadcast of a number for each parameter, and
    /// a wait of the host. A training that goes on from a checkpoint begins with the
    /// first order again, and so may round a sum otherwise.
    bool rebuild = true;
    /// Gradients that the step does not get are found when backward begins to announce
    /// gradients, so that buckets need not wait for them until the end. Without, a step
    /// is as right, and slower if parts of the model are skipped.
    bool find_unused = false;
};

/// Data parallelism that all-reduces gradients while backward goes on, bucket by bucket,
/// as PyTorch's DistributedDataParallel does (Li et al. 2020, 2006.15704, sections 3 and
/// 4).
///
/// Sends as many bytes as one all-reduce a parameter, 2(n-1)/n S, in one message chain a
/// bucket. The last bucket, of the first layer, has no backward left to hide behind.
/// Gradients become views of the buckets: no step copies them, and they need no second
/// buffer. (They are copied when buckets are made, and when these are filled once more.)
/// To accumulate, give train_step all micro-batches of a step; one by one, say their
/// number with zero_gradients(model, passes), which is what no_sync() is for in PyTorch.
///
/// Differs from PyTorch: sums weighted gradients instead of dividing by n. A bucket ends
/// before it would exceed its limit, not behind it. A step in which some gradients never
/// come ends right, since finish() reduces what is left, where PyTorch's raises an error
/// or hangs; find_unused makes such a step faster, and does not keep buckets from being
/// filled once more. What is no parameter, such as running statistics, is not broadcast.
///
/// A parameter whose gradient is partial along other lines as well is added up along
/// these at the end.
class BucketedDataParallel : public GradientBuckets {
  public:
    /// Every rank of `replicas` makes the same buckets. Throws UsageError if the
    /// parameters are not known to be partial along it, or a gradient has another type
    /// than those of its bucket.
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

    /// Forward used it so often in this step, and so many of these uses have given their
    /// part of the gradient.
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
    int steps_ = 0;  ///< begun
};

}  // namespace lockstep
