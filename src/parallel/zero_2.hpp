#pragma once

#include <vector>

#include "src/parallel/zero_1.hpp"

namespace lockstep {

/// ZeRO stage 2: as stage 1, and each rank keeps the gradients of its shard alone
/// (Rajbhandari et al. 2019, 1910.02054, section 5.2). A bucket's gradients are there
/// from its first term in a backward pass until they have been reduced and scattered,
/// while the next bucket fills: so two buckets' at most.
///
///     Zero2 sync(device, replicas, model.parameters());
///     AdamW optimizer(sync.shards());
///     train_step(device, model, loss, micro_batches, sync, optimizer);
///
/// As many bytes as stage 1 with one micro-batch a step. Of m micro-batches, which each
/// rank must have, each has its own reduce-scatter, since nobody has room for the whole
/// sum: (m + 1)(n-1)/n of the gradients' bytes. With bf16 values and gradients, f32
/// masters and AdamW a device holds 2 + 14/n bytes a parameter, and two buckets.
class Zero2 : public Zero1 {
  public:
    /// Throws UsageError as Zero1 does, and if gradients were to be all-reduced.
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

    std::vector<char> has_terms_;  ///< by bucket: its share, of this step
};

}  // namespace lockstep
