#pragma once

#include <cstddef>
#include <cstdint>

#include "src/nn/saved_on_host.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep {

struct OffloadOptions {
    /// While one module's backward runs, the activations of the `prefetch` modules before
    /// it are fetched. In forward, the activations of at most `prefetch` modules may
    /// still be on their way to the host.
    int prefetch = 1;
    /// Smaller tensors stay on the device, because each copy has a latency.
    std::int64_t least_bytes = 1024;
    /// Keeps the activations of the last 1 + prefetch modules on the device, because
    /// backward begins with these modules. If a pipeline has several micro-batches in
    /// flight, set it to false to send these activations, too. Then the next forward or
    /// backward waits until they are sent, and these modules' backward until they return.
    bool last_stay = true;
};

/// Keeps on the host the activations that modules save for backward. A module's
/// activations are sent while the next modules' forward computes. They are fetched while
/// the later modules' backward computes, and are back before the module's own backward
/// (Rhu et al. 2016, vDNN, 1602.08124, section 3). Results have the same bits.
///
///     OffloadedActivations offloaded(device, *gpt, first_block, first_block + L);
///
/// If each of L modules saves A bytes, the device holds (1 + prefetch) A bytes instead of
/// L A. The other (L - 1 - prefetch) A bytes cross the link to the host and back, once a
/// micro-batch. This costs no time if the link moves A bytes in less time than a module's
/// forward takes; otherwise each module takes as long as the link needs for A bytes.
///
/// SavedOnHost says which tensors are sent. A tensor that two neighbouring modules saved
/// is copied once if both modules' copies run together (prefetch is not 0). An input that
/// the caller also uses is copied, but its memory on the device is not released. Between
/// the halves of a backward, tensors that backward_weight needs stay on the device.
///
/// If a module is recomputed (Recompute), only its input is sent (Rajbhandari et al.
/// 2021, ZeRO-Infinity, 2104.07857). A block of a GPT saves at least 16 times the bytes
/// of its input. With h = 4096 and 8,192 tokens, on the preset h100, sending all saved
/// tensors makes a step 3 to 5 times as long; sending only the input costs no time.
///
/// Differs: vDNN copies a layer's input while that layer computes, and waits at the
/// layer's end. Here all tensors that a module saved are sent after its forward.
class OffloadedActivations {
  public:
    /// Wraps the modules [first, last). The model must not be used after this object is
    /// destroyed. The device needs a host. Throws UsageError if there are no such
    /// modules, or if an option is negative.
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
    Saved* before_ = nullptr;  ///< what the previous module of this forward saved
};

}  // namespace lockstep
