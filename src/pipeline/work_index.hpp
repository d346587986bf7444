#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "src/pipeline/schedule.hpp"

namespace lockstep {

/// An index of a schedule's work: the place of each computation and
/// message, and what it waits for.
///
/// An instruction waits for the instructions before it on its stage, and for its data: a
/// forward of part k waits for the forward of part k - 1, a backward of part k for the
/// backward of part k + 1, of the same micro-batch. If the schedule has messages and the
/// two parts are on different stages, the instruction waits for its receive instead.
class WorkIndex {
  public:
    /// The schedule must outlive the index. Micro-batches and chunks must be in range.
    explicit WorkIndex(const Schedule& schedule);

    /// Returns where an instruction is; none if it is missing. `backward` and
    /// `backward_input` find the same instruction: a whole backward, or the first half.
    Place find(InstructionKind kind, int part, int micro_batch) const;
    /// Two places that do the same work, if there are any.
    const std::optional<std::pair<Place, Place>>& twice() const { return twice_; }

    /// Returns the instruction that makes or receives a computation's data, if there is
    /// one.
    Place need(Place place) const;
    /// Returns the instruction at a message's other end; none if it is missing.
    Place partner(Place place) const;
    /// Returns the stage at a message's other end, which makes or uses the message's
    /// data; -1 if no stage does.
    int peer(Place place) const;
    /// Returns whether another stage makes the data that `place` needs.
    bool crosses(Place place) const;
    /// Returns the reductions that run together with this one: one on each stage that
    /// holds the part. The first reductions of all these stages run together, then the
    /// second ones, and so on. Position -1 means that a stage has no such reduction.
    std::vector<Place> meeting(Place place) const;
    /// Returns whether several stages hold the part.
    bool is_shared(int part) const { return shared_.contains(part); }

  private:
    /// A stage that holds a part, and the positions of its reductions of that part.
    struct Holder {
        int stage = 0;
        std::vector<int> reductions;
    };

    void find_shared_parts();
    void add_reduction(Place place);
    std::size_t slot(InstructionKind kind, int part, int micro_batch) const;
    Place source(Place place) const;
    Place other_end(Place place, bool computing) const;

    const Schedule& schedule_;
    bool messages_;
    int parts_;
    std::vector<Place> places_;
    std::map<int, std::vector<Holder>> shared_;  ///< parts that several stages hold
    std::optional<std::pair<Place, Place>> twice_;
};

}  // namespace lockstep
