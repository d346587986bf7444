#pragma once

#include <memory>
#include <optional>

#include "src/comm/communicator.hpp"
#include "src/device/device.hpp"

namespace lockstep {

/// Rank 0 of a group decides something again and again, and tells the others: a broadcast
/// of 4 bytes. Without numbers a broadcast brings none. Then which of two messages it
/// sends is what it says: a rank waits for either, and goes by the one that comes. A
/// message that waits so beside those of other communicators could hang on a GPU (F12),
/// but none computes without numbers.
class Decision {
  public:
    /// Every rank of the group calls it. Device and group must stay.
    Decision(Device& device, Communicator& group, SourceLine at = SourceLine::here());

    /// Returns what rank 0 has decided; what others think does not matter.
    bool decide(bool own, SourceLine at = SourceLine::here());
    /// Nothing more will be decided. Every rank calls it.
    void end(SourceLine at = SourceLine::here());

  private:
    /// A way for messages of 4 bytes from rank 0 to all others.
    struct Way {
        std::unique_ptr<Communicator> ranks;
        Tensor message;
        std::optional<Work> arrival{};
    };
    void tell(Way& way, SourceLine at);
    void expect(Way& way, SourceLine at);

    Device& device_;
    Communicator& group_;
    bool decides_;
    Way yes_, no_;
    Way* open_ = nullptr;  ///< on which others wait for what rank 0 has not said
};

}  // namespace lockstep
