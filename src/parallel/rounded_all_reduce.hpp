#pragma once

#include <optional>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/parallel/gradient_buckets.hpp"

namespace lockstep {

/// Data parallelism whose gradients travel in bf16, with half the bytes of f32. A bucket
/// that is full is rounded into a buffer, which is all-reduced while backward goes on; at
/// the end the sums are widened again (Kalamkar et al. 2019, 1905.12322, section 3, has
/// the format; PyTorch's bf16_compress_hook sends so).
///
/// Sends 2(n-1)/n of 2 bytes an element, in one all-reduce a bucket. Gradients become
/// views of the buckets; what is sent, 2 bytes an element, counts as communication. A
/// parameter whose gradient is partial along other lines as well is added up along these
/// at the end, as it is.
///
/// What is lost: rank i's term t of an element is rounded by the cast, and what is added
/// up is rounded after each of the n-1 additions on the way round the ring. Each of these
/// multiplies by 1 + d with |d| <= u = 2^-8, half of bf16's epsilon, so that a term meets
/// n of them at most:
///
///     |what arrives - sum of t| <= ((1 + u)^n - 1) * sum of |t|
///
/// while nothing leaves bf16's range, which is f32's (Higham 2002, Accuracy and Stability
/// of Numerical Algorithms, section 4.2). That is about n u of the sum if all terms have
/// one sign, and the ring decides in which order they come, for each part of the buffer
/// another: a term that is less than u of what it is added to may vanish. All ranks get
/// the same bits.
class RoundedAllReduce : public GradientBuckets {
  public:
    /// Throws UsageError if the parameters are not known to be partial along `replicas`,
    /// or have gradients in bf16 already.
    RoundedAllReduce(Device& device, Communicator& replicas,
                     std::vector<Parameter*> parameters, const BucketSizes& sizes = {});

    void finish() override;

  private:
    void start(std::size_t bucket) override;

    /// A bucket's elements.
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
