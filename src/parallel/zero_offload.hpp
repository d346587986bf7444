#pragma once

#include <vector>

#include "src/parallel/zero_2.hpp"

namespace lockstep {

/// ZeRO-Offload: stage 2 with shards on the host. During backward, gradients are copied
/// to the host as they are reduced. The optimizer that updates these shards runs on the
/// host and has its state there. New values are copied back to the device (Ren et al.
/// 2021, 2101.06840, section 4).
///
///     ZeroOffload sync(rank.device(), replicas, model.parameters());
///     const auto optimizer = make_optimizer<AdamW>(sync.shards(), AdamWOptions{});
///
/// Per bf16 parameter and step, a device sends 2/n bytes to its host and gets 2/n back.
/// The device holds values, two buckets of gradients, and the shares of two buckets that
/// are being copied. The host holds 16/n bytes: value, gradient, master and two moments.
///
/// The host's update runs between two steps, and the device waits. With `delayed` the
/// update runs during the next step (section 5.2; one-step delayed parameter update).
/// That step reads values without the newest gradient, so training gives other results.
/// If the update is shorter than the step, only the copy of new values to the device is
/// exposed, because values must not be overwritten before backward is done. The gradient
/// of the last step is never used. The first step updates nothing, and neither does the
/// first step after a checkpoint was loaded. After update() the shards' gradients are the
/// batch's; clip them then. In backward the program does not wait for copies. So the
/// device keeps all its shares until they are copied: 2/n more bytes per parameter.
///
/// Differs: the paper starts to delay after a few dozen steps, which is more stable.
/// Gradients of several micro-batches are summed on the host.
class ZeroOffload : public Zero2 {
  public:
    /// Throws UsageError as Zero2 does, and if parameters are also partial along other
    /// lines. Sums along these lines need gradients on the device.
    ZeroOffload(Device& device, Communicator& replicas,
                std::vector<Parameter*> parameters, const ZeroOptions& options = {},
                bool delayed = false);

    void finish() override;
    void update(Optimizer& optimizer) override;
    void send_values() override;
    const char* unsaved() const override {
        return delayed_ ? "the gradient that its next update takes" : nullptr;
    }

  private:
    void renew(Optimizer* optimizer) override;
    void turn_gradients();

    bool delayed_;
    std::vector<Tensor> before_;  ///< by bucket: the previous step's gradients
    int steps_ = 0;
};

}  // namespace lockstep
