#pragma once

#include "src/comm/communicator.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/train_step.hpp"

namespace lockstep {

/// ZeRO stage 1: each of n replicas keeps the optimizer's state of a shard alone, 1/n of
/// the parameters, and updates that; the others get its new values (Rajbhandari et al.
/// 2019, 1910.02054, section 5).
///
///     Zero1 sync(device, replicas, model.parameters());
///     AdamW optimizer(sync.shards());
///     train_step(device, model, loss, micro_batches, sync, optimizer);
///
/// A reduce-scatter of all gradients and an all-gather of all values: 2(n-1)/n of their
/// bytes, as much as data parallelism's all-reduce. Values and gradients become views of
/// one buffer each, and each rank has an equal range of them: whole parameters, and at
/// its ends parts. Parameters that other ranks hold alike, along other lines, have a
/// buffer of their own: those ranks then share them out, and add them up, in the same
/// way. Otherwise the copies of a tied table would drift apart by rounding. (Megatron-LM
/// keeps tied embeddings in a bucket of their own for that.) So where the parameters lie
/// is said before. Only an optimizer that works element by element can be shared out so.
class Zero1 : public GradientSync {
  public:
    /// Throws UsageError if the parameters are not known to be partial along `replicas`,
    /// or are too few to give each rank one element.
    Zero1(Device& device, Communicator& replicas, std::vector<Parameter*> parameters);

    /// This rank updates these, and norms and records are made of them: after finish()
    /// their gradients are the batch's.
    std::vector<Parameter*> shards() const;

    void begin() override;
    void finish() override;
    /// Throws UsageError if the optimizer has other parameters than the shards.
    void update(Optimizer& optimizer) override;

  private:
    Communicator& replicas_;
    std::vector<FlatShare> buffers_;
    std::size_t places_ = 0;  ///< of all parameters, when it was made
};

}  // namespace lockstep
