#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "src/device/device.hpp"
#include "src/nn/module.hpp"

namespace lockstep {

/// Sends tensors that forwards have saved to the host, and fetches them for backward. The
/// copies run while the device computes, in the order of the calls.
///
/// Only memory of the category `activations` is sent: no values of parameters, and no
/// indices, which are small and belong to the caller. A tensor that was saved under
/// several names or shapes is copied once. A tensor that two forwards have saved is also
/// copied once, if their copies run at the same time.
class SavedOnHost {
  public:
    /// Tensors below `least_bytes` stay on the device, because each copy has a latency.
    /// Throws UsageError if the device has no host.
    SavedOnHost(Device& device, std::int64_t least_bytes);

    /// Starts to copy the tensors of `saved` to the host; the copies replace the tensors.
    void send(Saved& saved);
    /// Keeps the tensors on the device, but enters `saved` into the queue; see let_go().
    void keep(Saved& saved) { leaving_.push_back({&saved, {}}); }
    /// Waits until at most `most` forwards, sent or kept, are still in the queue. The
    /// device releases the sent tensors of forwards that have left the queue.
    void let_go(std::size_t most);
    /// Waits until `saved` has left the queue. The first call starts to copy it back.
    void fetch(Saved& saved);
    /// If `saved` is the oldest forward that is being fetched, waits for its tensors.
    void wait(const Saved& saved);

  private:
    /// The two ends of a copy: on the device, and on the host. Kept until the copy ends.
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
