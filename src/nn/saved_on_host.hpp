#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "src/device/device.hpp"
#include "src/nn/module.hpp"

namespace lockstep {

/// Sends what forwards have saved to the host, and fetches it for their backwards. The
/// copies run beside what the device computes, in the order in which they are asked for.
///
/// What goes is memory of the category `activations`, not values of parameters, and not
/// indices, which are small, and the caller's. A tensor that was saved under several
/// names or shapes is copied once; so is one that two have saved which are under way
/// together.
class SavedOnHost {
  public:
    /// Smaller tensors stay: each copy has its latency. Throws UsageError if the device
    /// has no host.
    SavedOnHost(Device& device, std::int64_t least_bytes);

    /// Starts the copies of what was saved, which from now on is on the host.
    void send(Saved& saved);
    /// Has it stay, but take its turn among those that are sent: see let_go().
    void keep(Saved& saved) { leaving_.push_back({&saved, {}}); }
    /// Waits until at most so many of those that were sent, or kept, are still on their
    /// way. The device lets go of what has left.
    void let_go(std::size_t most);
    /// Starts the copies back to the device, if they were not, once it has left.
    void fetch(Saved& saved);
    /// Waits until it is back, if it is the first of those that were fetched.
    void wait(const Saved& saved);

  private:
    /// A tensor on both sides, until the copy that it is in has ended.
    struct Copy {
        Tensor here;
        Tensor there;
        Work work;
    };
    /// Those of one forward, in the order in which they were started.
    struct Copies {
        const Saved* of;
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
