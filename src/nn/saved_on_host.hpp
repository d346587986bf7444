#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "src/device/device.hpp"
#include "src/nn/module.hpp"

namespace lockstep {

/// Sends what forwards have saved to the host, and fetches it for their backwards. The
/// copies run while the device computes, in the order in which they are asked for.
///
/// Only memory of the category `activations` is sent: no values of parameters, and no
/// indices, which are small and belong to the caller. A tensor that was saved under
/// several names or shapes is copied once. So is a tensor that two forwards have saved,
/// if their copies run at the same time.
class SavedOnHost {
  public:
    /// Tensors below `least_bytes` stay on the device: each copy has its latency. Throws
    /// UsageError if the device has no host.
    SavedOnHost(Device& device, std::int64_t least_bytes);

    /// Starts to copy what was saved. From now on it is on the host.
    void send(Saved& saved);
    /// Keeps it on the device, but in one queue with those that are sent: see let_go().
    void keep(Saved& saved) { leaving_.push_back({&saved, {}}); }
    /// Waits until at most `most` of those that were sent, or kept, are still in the
    /// queue. The device releases those that have left.
    void let_go(std::size_t most);
    /// Waits until it has left, and starts the copies back, unless they were started.
    void fetch(Saved& saved);
    /// Waits until it is back, if it is the oldest of those that are returning.
    void wait(const Saved& saved);

  private:
    /// A tensor on both sides, until its copy has ended.
    struct Copy {
        Tensor here;
        Tensor there;
        Work work;
    };
    /// The copies of one forward, in the order in which they were started.
    struct Copies {
        const Saved* saved;
        std::vector<Copy> list;
    };
    using Queue = std::deque<Copies>;

    bool goes(const Tensor& tensor) const;
    static void wait_for_first(Queue& queue);
    static const Copy* find(const Queue& queue, Tensor Copy::*side, const Tensor& range);

    Device& device_;
    std::int64_t least_bytes_;
    Queue leaving_;
    Queue returning_;
};

}  // namespace lockstep
