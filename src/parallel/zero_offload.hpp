#pragma once

#include <vector>

#include "src/parallel/zero_2.hpp"

namespace lockstep {

/// ZeRO-Offload: stage 2 whose shards live on the host. Their gradients go there as they
/// are reduced, beside backward; the optimizer, made of these shards, runs there and has
/// its state there; new values come back (Ren et al. 2021, 2101.06840, section 4).
///
///     ZeroOffload sync(rank.device(), replicas, model.parameters());
///     const auto optimizer = make_optimizer<AdamW>(sync.shards(), AdamWOptions{});
///
/// Of a parameter in bf16 a device sends 2/n bytes to its host and gets 2/n back, a step;
/// it holds values, two buckets of gradients, and the shares of two on their way. The
/// host holds 16/n: value, gradient, master and two moments.
///
/// The host's update stands between two steps, and the device waits. With `delayed` it
/// runs beside the next step instead, which so reads values that lack the newest gradient
/// (section 5.2; one-step delayed parameter update): what is trained is another function
/// of the data. If it is shorter than the step, only the new values' way back is seen,
/// since nothing may overwrite values before backward is done. The last step's gradient
/// is then never used, and the first step updates nothing, nor does the first one after a
/// checkpoint was loaded. The shards' gradients are the batch's after update(), and are
/// clipped there. The device keeps all its shares until they have gone, 2/n bytes a
/// parameter more: the program does not wait for them in backward.
///
/// Differs: the paper starts to delay after a few dozen steps, which is more stable.
/// Gradients of several micro-batches are added up on the host.
class ZeroOffload : public Zero2 {
  public:
    /// Throws UsageError as Zero2 does, and if parameters are partial along other lines
    /// too: their gradients are no longer on the device when these are added up.
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
    std::vector<Tensor> before_;  ///< by bucket: gradients of the step before
    int steps_ = 0;
};

}  // namespace lockstep
