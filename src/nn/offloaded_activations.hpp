#pragma once

#include <cstddef>
#include <cstdint>

#include "src/nn/saved_on_host.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep {

struct OffloadOptions {
    /// Activations are fetched this many modules before the one whose backward runs. In
    /// forward, the activations of this many modules may still be on their way to the
    /// host.
    int prefetch = 1;
    /// Smaller tensors stay on the device: each copy has its latency.
    std::int64_t least_bytes = 1024;
    /// The activations of the last 1 + prefetch modules stay, since backward begins with
    /// them. A pipeline has several micro-batches in flight; set this to false to send
    /// these out, too. Then the next forward or backward waits for their copies, and a
    /// backward begins with a wait for their return.
    bool last_stay = true;
};

/// Keeps on the host what modules save for backward. A module's activations are sent
/// there while the next modules' forward computes. They are fetched while the later
/// modules' backward computes, and are back before the module's own backward (Rhu et al.
/// 2016, vDNN, 1602.08124, section 3). Results have the same bits.
///
///     OffloadedActivations offloaded(device, *gpt, first_block, first_block + L);
///
/// With A bytes for each of L modules, the device holds those of 1 + prefetch modules,
/// (1 + prefetch) A instead of L A. The others, (L - 1 - prefetch) A, cross the link to
/// the host and back, once a micro-batch. That costs no time if a module's forward takes
/// longer than A over the link; else each module takes as long as the link does.
///
/// SavedOnHost says which tensors are sent. A tensor that neighbouring modules saved is
/// copied once if their copies run together (prefetch is not 0). An input that the caller
/// also holds is copied, but its memory stays. Between the halves of a backward, what
/// backward_weight needs stays on the device.
///
/// A module may be recomputed (Recompute): then only its input is sent (Rajbhandari
/// et al. 2021, ZeRO-Infinity, 2104.07857). A block of a GPT saves at least 16 times as
/// much as its input. With h = 4096 and 8,192 tokens, on the preset h100, sending all of
/// it makes a step 3 to 5 times as long; sending only the input costs nothing.
///
/// Differs: vDNN copies a layer's input while that layer computes, and waits at its end.
/// Here all that a module saved is sent after its forward.
class OffloadedActivations {
  public:
    /// Puts layers in the places of the modules [first, last). The model must not be used
    /// after this object is destroyed. The device needs a host. Throws UsageError if
    /// there are no such modules, or if an option is negative.
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
    Saved* before_ = nullptr;  ///< of the previous module, in the running forward
};

}  // namespace lockstep
