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
/// An instruction waits for those before it on its stage, and for the data
/// it needs: a forward of part k for that of part k - 1, a backward of part
/// k for that of part k + 1, of the same micro-batch; or, if the schedule
/// has messages and the two are on different stages, for its receive.
class WorkIndex {
  public:
    /// The schedule must stay. Micro-batches and chunks must be in range.
    explicit WorkIndex(const Schedule& schedule);

    /// None if it is nowhere. A backward in two halves is found as its
    /// first, whichever of the two kinds is asked for.
    Place find(InstructionKind kind, int part, int micro_batch) const;
    /// Two places of the same work, if there are any.
    const std::optional<std::pair<Place, Place>>& twice() const { return twice_; }

    /// Returns what a computation waits for beside its stage's program;
    /// none if there is nothing.
    Place need(Place place) const;
    /// The other end of a message; none if there is none.
    Place partner(Place place) const;
    /// The stage at a message's other end, by who computes there; -1 if nobody does.
    int peer(Place place) const;
    /// Returns whether what `place` needs comes from another stage.
    bool crosses(Place place) const;
    /// Returns the reductions of gradients that meet in this one, of all stages that hold
    /// the part: its first reduction meets the others' first. Position -1 stands for one
    /// that its stage's list does not have.
    std::vector<Place> meeting(Place place) const;
    /// Returns whether several stages hold the part.
    bool is_shared(int part) const { return shared_.contains(part); }

  private:
    /// A stage that holds a part, and where it reduces the part's gradients.
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
