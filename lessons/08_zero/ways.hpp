#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "lessons/02_data_parallel/forms.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/zero_1.hpp"
#include "src/parallel/zero_offload.hpp"

namespace lockstep::lessons {

// Ways to share out what replicas hold, and what each holds, sends and waits for.

/// Data parallelism in buckets: all hold everything.
MakeStrategy replicas(const BucketSizes& sizes = {});
MakeStrategy zero_1(const ZeroOptions& options = {});
MakeStrategy zero_2(const ZeroOptions& options = {});
MakeStrategy fully_sharded(const FullyShardedOptions& options = {});
MakeStrategy zero_offload(const ZeroOptions& options = {}, bool delayed = false);

/// Layers without biases, of which each is a bucket, or a unit. They are trained as large
/// models are: values and gradients in bf16, AdamW with f32 masters and moments. Made
/// without memory, until a strategy makes it.
struct Stack {
    int layers = 8;
    std::int64_t width = 512;
    std::int64_t rows = 512;  ///< of a micro-batch
    int micro_batches = 1;

    std::int64_t layer() const { return width * width; }
    std::int64_t parameters() const { return layers * layer(); }
    BucketSizes bucket() const { return {2 * layer(), 2 * layer()}; }
    MeasuredStep step() const;
};

/// GPTs of a family: n layers, 2 n heads of 128 columns, so that about 12 n (256 n)²
/// numbers are in the blocks; 50,257 words, a table of its own for the head. One sequence
/// of 1,024 tokens on each device. Trained as a Stack is.
struct FamilyGpt {
    /// Blocks keep one of these for backward: all that it needs, all but what stands
    /// between attention's linear layers, or their input; on the device or on the host.
    enum class Keeps { all, all_but_attention, input, all_on_host, input_on_host };

    int layers = 0;
    Keeps keeps = Keeps::all;

    std::int64_t parameters() const;
    MeasuredStep step() const;
};

/// Values, gradients and the optimizer's state, each at its peak.
std::int64_t state_of(const RankReport& rank);

/// Returns the largest n such that the family's GPT fits each of so many devices of the
/// cluster. By bisection from a size on that is known to fit; each GPT is run.
int largest_that_fits(int devices, const ClusterSpec& spec, const MakeStrategy& strategy,
                      int fitting = 0);

}  // namespace lockstep::lessons
