#pragma once

#include <cstddef>
#include <cstdint>

#include "src/nn/saved_on_host.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep {

struct OffloadOptions {
    /// So many modules ahead of the one whose backward computes, activations come back;
    /// in forward, those of as many are still on their way out.
    int prefetch = 1;
    /// Smaller tensors stay: each copy has its latency.
    std::int64_t least_bytes = 1024;
    /// The last 1 + prefetch modules' activations stay, since backward begins with them.
    /// A pipeline has several micro-batches in flight; there, false sends them out, too.
    /// Then the next forward or backward waits for their copies, and a backward begins
    /// with a wait for their return.
    bool last_stay = true;
};

/// What modules save for backward waits on the host meanwhile: a module's goes there
/// while the next ones' forward computes, and is back before its own backward, fetched
/// while the later ones' computes (Rhu et al. 2016, vDNN, 1602.08124, section 3). Same
/// bits.
///
///     OffloadedActivations offloaded(device, *gpt, first_block, first_block + L);
///
/// With A bytes for each of L modules, the device holds those of 1 + prefetch modules,
/// (1 + prefetch) A instead of L A; the others, (L - 1 - prefetch) A, cross the link to
/// the host and back, once a micro-batch. That costs no time if a module's forward takes
/// longer than A over the link; else each module takes as long as the link does.
///
/// What goes is what SavedOnHost says; a tensor that neighbours saved is copied once if
/// they are under way together (prefetch is not 0). An input that the caller holds as
/// well is copied, but its memory stays. Between the halves of a backward, what
/// backward_weight needs stays on the device.
///
/// A module may be one that is recomputed (Recompute): then its input is all that goes
/// (Rajbhandari et al. 2021, ZeRO-Infinity, 2104.07857). A block of a GPT saves 16 times
/// as much as that, and more: with h = 4096 and 8,192 tokens, on the preset h100, all of
/// it makes a step 3 to 5 times as long, its input alone costs nothing.
///
/// Differs: vDNN copies a layer's input while that layer itself computes, and waits at
/// its end; here all that a module saved goes when its forward is done.
class OffloadedActivations {
  public:
    /// Puts layers in the places of the modules [first, last): the model can be used no
    /// longer than this. The device needs a host. Throws UsageError for modules that are
    /// not there, or a negative option.
    OffloadedActivations(Device& device, Sequential& model, std::size_t first,
                         std::size_t last, const OffloadOptions& options = {});
    OffloadedActivations(const OffloadedActivations&) = delete;
    OffloadedActivations& operator=(const OffloadedActivations&) = delete;

  private:
    class Layer;
    void after_forward(std::size_t place, Saved& saved);
    void before_backward(Saved& saved);
    bool stays(std::size_t place) const;

    SavedOnHost on_host_;
    std::size_t count_;  ///< of modules
    OffloadOptions options_;
    Saved* before_ = nullptr;  ///< of the module before, in the forward that goes on
};

}  // namespace lockstep
