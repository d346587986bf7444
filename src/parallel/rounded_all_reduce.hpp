#pragma once

#include <optional>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/parallel/gradient_buckets.hpp"

namespace lockstep {

/// Data parallelism that sends gradients in bf16, with half the bytes of f32. A full
/// bucket is rounded into a buffer. This buffer is all-reduced while backward runs, and
/// its sums are converted back at the end (format: Kalamkar et al. 2019, 1905.12322,
/// section 3; PyTorch's bf16_compress_hook does the same).
///
/// Sends 2(n-1)/n times 2 bytes per element, in one all-reduce per bucket. Gradients
/// become views of the buckets; the bf16 buffers (2 bytes per element) count as
/// communication. If a parameter's gradient is also partial along other lines, it is
/// summed along these lines at the end, in its own type.
///
/// Rounding error: the cast rounds rank i's term t of an element. Around the ring, each
/// of the n-1 additions rounds its result. Each rounding multiplies the number by 1 + d
/// with |d| <= u = 2^-8, half of bf16's epsilon. A term is rounded at most n times:
///
///     |result - sum of t| <= ((1 + u)^n - 1) * sum of |t|
///
/// This holds if no number leaves bf16's range, which is f32's (Higham 2002, Accuracy and
/// Stability of Numerical Algorithms, section 4.2). The bound is about n u times the sum
/// if all terms have the same sign. The ring decides the order of the additions, which
/// differs from chunk to chunk of the buffer. A term may vanish if it is added to a
/// number more than 1/u times as large. All ranks get the same bits.
class RoundedAllReduce : public GradientBuckets {
  public:
    /// Throws UsageError if the parameters are not known to be partial along `replicas`,
    /// or if their gradients are bf16 already.
    RoundedAllReduce(Device& device, Communicator& replicas,
                     std::vector<Parameter*> parameters, const BucketSizes& sizes = {});

    void finish() override;

  private:
    void start(std::size_t bucket) override;

    /// A bucket's gradients, and the rounded copy that is sent.
    struct Flat {
        Tensor gradients;
        Tensor rounded;  ///< bf16
        std::optional<Work> sum{};
    };
    Device& device_;
    Communicator& replicas_;
    std::vector<Flat> flat_;  ///< by bucket
};

}  // namespace lockstep
