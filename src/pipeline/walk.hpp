#pragma once

#include "src/pipeline/work_index.hpp"

namespace lockstep {

/// Told of each instruction once all that it waits for is done.
class WalkVisitor {
  public:
    virtual ~WalkVisitor() = default;
    /// A computation, or the end of a step. `need` is what it waited for
    /// beside its stage's program; none where nothing.
    virtual void computed(Place place, Place need) = 0;
    /// A stage's program has come to a message.
    virtual void posted(Place place) = 0;
    /// Both ends' queues have come to a message.
    virtual void delivered(Place send, Place recv) = 0;
};

/// Goes through a schedule as its stages would: each works its list from
/// front to back. Messages are posted and go on beside the work; each stage
/// has one queue of them, served in order, and nothing is buffered: a send
/// and its receive meet.
class Walk {
  public:
    /// Schedule, index and visitor must stay.
    Walk(const Schedule& schedule, const WorkIndex& index,
         WalkVisitor& visitor);

    /// To the end; false where nothing can run before that.
    bool run();

    /// Computations that were done.
    int computations() const { return computations_; }
    /// Where a stage stands; none where it has come to its end.
    Place at(int stage) const;
    /// The message that a stage's queue has come to; none where it is
    /// empty.
    Place queued(int stage) const;
    bool done(Place place) const {
        return done_[place.stage][place.position] != 0;
    }

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
