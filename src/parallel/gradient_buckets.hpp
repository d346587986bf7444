#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/parallel/train_step.hpp"

namespace lockstep {

/// Data parallelism that reduces gradients while backward goes on: they lie in buckets,
/// the last layers' first, and a bucket is all-reduced as soon as the last of its
/// gradients is there (Li et al. 2020, PyTorch Distributed, 2006.15704, section 3.2).
///
/// Sends as many bytes as one all-reduce a parameter, 2(n-1)/n of the gradients', in
/// fewer messages. What stays exposed is the last bucket, the first layer's. Nothing is
/// sent between the micro-batches of a step. Gradients become views of the buckets. A
/// parameter whose gradient is partial along other lines as well is added up along these
/// at the end.
class GradientBuckets : public GradientSync {
  public:
    /// A bucket holds a parameter at least, and ends before `bytes` would be exceeded.
    /// Every rank of `replicas` makes the same buckets.
    GradientBuckets(Device& device, Communicator& replicas,
                    std::vector<Parameter*> parameters,
                    std::int64_t bytes = std::int64_t{25} << 20);

    void begin() override;
    void finish() override;

  private:
    struct Bucket {
        Tensor gradients;
        std::vector<Parameter*> members;
        std::size_t missing = 0;
        std::optional<Work> work{};
    };

    void ready(Parameter& parameter) override;
    /// Reduces the next buckets that are full, or all that are left.
    void start(bool all);

    Communicator& replicas_;
    std::vector<Bucket> buckets_;
    std::unordered_map<const Parameter*, std::size_t> bucket_of_;
    std::size_t next_ = 0;  ///< to be started, in the same order on all ranks
};

}  // namespace lockstep
