#pragma once

#include <optional>
#include <utility>

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

  private:
    std::size_t slot(InstructionKind kind, int part, int micro_batch) const;
    Place source(Place place) const;
    Place other_end(Place place, bool computing) const;

    const Schedule& schedule_;
    bool messages_;
    int parts_;
    std::vector<Place> places_;
    std::optional<std::pair<Place, Place>> twice_;
};

/// The version of its chunk's weights that each computation reads: versions are counted
/// in optimizer steps of the chunk, from 0 at the schedule's start.
class WeightVersions {
  public:
    /// The schedule must stay; its chunks must be in range.
    explicit WeightVersions(const Schedule& schedule);

    /// Optimizer steps of the instruction's chunk before it.
    int newest(Place place) const { return newest_[place.stage][place.position]; }
    /// Returns the version that the instruction names, or the newest if it names none.
    int read(Place place) const {
        const int said = schedule_.at(place).weight_version;
        return said >= 0 ? said : newest(place);
    }

  private:
    const Schedule& schedule_;
    std::vector<std::vector<int>> newest_;
};

/// Told of each instruction once all that it waits for is done.
class WalkVisitor {
  public:
    virtual ~WalkVisitor() = default;
    /// A computation, or the end of a step. `need` is what it waited for
    /// beside its stage's program; none if there is nothing.
    virtual void computed(Place place, Place need) = 0;
    /// A stage's program has come to a message.
    virtual void posted(Place place) = 0;
    /// Both ends' queues have come to a message.
    virtual void delivered(Place send, Place recv) = 0;
};

/// Goes through a schedule as its stages would: each works its list from front to back.
/// Messages are posted and go on beside the work; each stage has one queue of them,
/// served in order, and nothing is buffered: a send and its receive meet.
class Walk {
  public:
    /// Schedule, index and visitor must stay.
    Walk(const Schedule& schedule, const WorkIndex& index, WalkVisitor& visitor);

    /// To the end; false if nothing can run before that.
    bool run();

    /// Computations that were done.
    int computations() const { return computations_; }
    /// Returns the instruction that a stage has come to; none at its end.
    Place at(int stage) const;
    /// The message that a stage's queue has come to; none if it is empty.
    Place queued(int stage) const;
    bool done(Place place) const { return done_[place.stage][place.position] != 0; }

  private:
    struct Lane {
        int next = 0;              ///< in the stage's list
        std::vector<int> queue;    ///< positions of posted messages
        std::size_t served = 0;    ///< of the queue
        std::vector<int> waiting;  ///< stages that wait for this one
        bool ready = false;        ///< to be looked at again
    };

    Lane& lane(int stage) { return lanes_[stage]; }
    void advance(int stage);
    void serve(int stage);
    void finish(Place place);
    void look_again(int stage);

    const Schedule& schedule_;
    const WorkIndex& index_;
    WalkVisitor& visitor_;
    std::vector<Lane> lanes_;
    std::vector<std::vector<char>> done_;
    std::vector<int> ready_;  ///< stages to look at again
    int computations_ = 0;
};

}  // namespace lockstep
