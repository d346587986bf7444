#pragma once

#include <vector>

#include "src/parallel/zero_1.hpp"

namespace lockstep {

/// ZeRO stage 2: like stage 1, but each rank keeps only the gradients of its shard
/// (Rajbhandari et al. 2019, 1910.02054, section 5.2). A bucket's gradients exist from
/// the bucket's first term in a backward pass until they are reduced and scattered, while
/// the next bucket fills. So the gradients of at most two buckets exist.
///
///     Zero2 sync(device, replicas, model.parameters());
///     AdamW optimizer(sync.shards());
///     train_step(device, model, loss, micro_batches, sync, optimizer);
///
/// With one micro-batch per step, stage 2 sends the same bytes as stage 1. With m
/// micro-batches on each rank, every micro-batch has its own reduce-scatter, because no
/// rank has memory for the whole sum. A rank then sends (m + 1) (n-1)/n of the gradients'
/// bytes. With bf16 values and gradients, f32 masters and AdamW a device holds 2 + 14/n
/// bytes per parameter, plus two buckets.
class Zero2 : public Zero1 {
  public:
    /// Throws UsageError as Zero1 does, and if all_reduce is set.
    Zero2(Device& device, Communicator& replicas, std::vector<Parameter*> parameters,
          const ZeroOptions& options = {});

    void begin() override;

  protected:
    Zero2(const char* name, Device* home, Device& device, Communicator& replicas,
          std::vector<Parameter*> parameters, const ZeroOptions& options);

  private:
    void start(std::size_t bucket) override;
    void before_use(Parameter& parameter, Use use) override;
    void make_gradients(std::size_t bucket);

    std::vector<char> has_terms_;  ///< by bucket: whether its share has terms of the step
};

}  // namespace lockstep
