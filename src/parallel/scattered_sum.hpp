#pragma once

#include <optional>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/device/device.hpp"

namespace lockstep {

/// Gradients that ranks have terms of, and what this rank gets of their sums.
struct SummedShare {
    Tensor whole;  ///< (n x the share's elements); of this rank's terms
    Tensor share;  ///< on the device or on its host; may have a type of its own
};

/// A reduce-scatter of gradients on its way, of several as one message: each rank of a
/// line ends with the sums of its shares. It is made in the shares' type: bf16 gradients
/// can be added up in f32, which casts a copy of them. What arrives replaces what shares
/// hold, or is added to it, for gradients of several micro-batches.
///
/// A share on the host is reached by a copy, which starts as soon as the sum is waited
/// for. Keeps the wholes until then, and what is copied until settle(). (n-1)/n of their
/// bytes.
class ScatteredSum {
  public:
    bool is_on_its_way() const { return sums_.has_value(); }

    void start(Device& device, Communicator& line, std::vector<SummedShare> of, bool adds,
               SourceLine at = SourceLine::here());
    /// The device goes on when the sums are there; lets go of the wholes. Does nothing if
    /// nothing is on its way.
    void finish(SourceLine at = SourceLine::here());
    /// The program goes on when what finish() sent to the host is there.
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
    std::vector<SummedShare> of_;
    std::vector<Tensor> arriving_;  ///< on the device: shares themselves, if they can
    bool adds_ = false;
    std::optional<Work> sums_;
    std::vector<Copy> copies_;
};

/// Sums that follow one another through backward. Before one starts, the one before it is
/// finished, and what the one before that sent to the host has arrived: so the wholes of
/// one are there beside what backward fills, and the shares of two on their way to the
/// host. The sums must stay as long as this.
class SumsInTurn {
  public:
    /// Makes room for this sum, which is started next.
    void before(ScatteredSum& next, SourceLine at = SourceLine::here());
    /// The program never waits for what is on its way to the host: all of it stays, until
    /// each sum is settled.
    void let_program_go_on() { program_waits_ = false; }
    /// The device goes on when the last one is there.
    void finish(SourceLine at = SourceLine::here());

  private:
    ScatteredSum* last_ = nullptr;         ///< that was started
    ScatteredSum* before_last_ = nullptr;  ///< may be on its way to the host
    bool program_waits_ = true;
};

}  // namespace lockstep
