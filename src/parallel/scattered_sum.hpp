#pragma once

#include <optional>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/device/device.hpp"

namespace lockstep {

/// Gradients with terms on several ranks, and this rank's share of the summed gradients.
struct SummedShare {
    Tensor whole;  ///< (n x the share's elements), this rank's terms
    Tensor share;  ///< on the device or on its host; may have its own type
};

/// A running reduce-scatter of several gradients in one message. Each rank of a line gets
/// the sums of its shares. The sums have the shares' type: bf16 gradients can be summed
/// in f32, from a cast copy. The sums replace the shares' values or, for gradients of
/// several micro-batches, are added to them.
///
/// If a share is on the host, finish() starts a copy of its sum to the host. The whole
/// gradients are kept until finish(), and the copied sums until settle(). Sends (n-1)/n
/// of the gradients' bytes.
class ScatteredSum {
  public:
    bool is_on_its_way() const { return sums_.has_value(); }

    void start(Device& device, Communicator& line, std::vector<SummedShare> shares,
               bool adds, SourceLine at = SourceLine::here());
    /// Makes the device wait for the sums; releases the whole gradients. Does nothing if
    /// no sum is running.
    void finish(SourceLine at = SourceLine::here());
    /// Makes the program wait for the copies to the host that finish() started.
    void settle(SourceLine at = SourceLine::here());

  private:
    struct Copy {
        Tensor there;  ///< on the host
        Tensor here;
        Tensor share;
        bool adds;
        Work work;
    };

    Device* device_ = nullptr;
    std::vector<SummedShare> shares_;
    std::vector<Tensor> arriving_;  ///< on the device: shares if possible, else buffers
    bool adds_ = false;
    std::optional<Work> sums_;
    std::vector<Copy> copies_;
};

/// Sums that follow one another during backward. Before a sum starts, the previous sum is
/// finished, and the sum before the previous one is on the host. So beside the gradients
/// that backward fills, the device holds the whole gradients of one sum, and the shares
/// of two sums that are being copied to the host. The sums must outlive this object.
class SumsInTurn {
  public:
    /// Call this before `next` is started: it finishes earlier sums, as described above.
    void before(ScatteredSum& next, SourceLine at = SourceLine::here());
    /// After this call the program never waits for copies to the host. Each sum keeps its
    /// copies until it is settled.
    void let_program_go_on() { program_waits_ = false; }
    /// Makes the device wait for the last sum.
    void finish(SourceLine at = SourceLine::here());

  private:
    ScatteredSum* last_ = nullptr;         ///< the last sum that was started
    ScatteredSum* before_last_ = nullptr;  ///< may still be copied to the host
    bool program_waits_ = true;
};

}  // namespace lockstep
