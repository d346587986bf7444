#pragma once

#include <vector>

#include "src/parallel/zero_2.hpp"

namespace lockstep {

/// ZeRO-Offload: stage 2 with shards on the host. Their gradients are copied there as
/// they are reduced, during backward. The optimizer, made of these shards, runs there and
/// has its state there. New values are copied back (Ren et al. 2021, 2101.06840,
/// section 4).
///
///     ZeroOffload sync(rank.device(), replicas, model.parameters());
///     const auto optimizer = make_optimizer<AdamW>(sync.shards(), AdamWOptions{});
///
/// Per bf16 parameter and step, a device sends 2/n bytes to its host and gets 2/n back.
/// The device holds values, two buckets of gradients, and the shares of two buckets that
/// are being copied. The host holds 16/n: value, gradient, master and two moments.
///
/// The host's update runs between two steps, and the device waits. With `delayed` it runs
/// during the next step instead, which therefore reads values without the newest gradient
/// (section 5.2; one-step delayed parameter update): training then gives other results.
/// If the update is shorter than the step, only the copy of new values back is exposed,
/// since nothing may overwrite values before backward is done. The last step's gradient
/// is never used. The first step updates nothing, and neither does the first step after a
/// checkpoint was loaded. The shards' gradients are the batch's after update(); clip them
/// there. The device keeps all its shares until they are copied, 2/n more bytes per
/// parameter, because the program does not wait for the copies in backward.
///
/// Differs: the paper starts to delay after a few dozen steps, which is more stable.
/// Gradients of several micro-batches are summed on the host.
class ZeroOffload : public Zero2 {
  public:
    /// Throws UsageError as Zero2 does, and if parameters are also partial along other
    /// lines: those sums need gradients on the device, which are no longer there.
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
