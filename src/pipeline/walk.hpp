#pragma once

#include <vector>

#include "src/pipeline/timer.hpp"
#include "src/pipeline/work_index.hpp"

namespace lockstep {

/// Runs a schedule as its stages would, and records when everything happens. Each stage
/// works through its list from front to back. Messages are posted to the stage's queues
/// and overlap with its computations. Nothing is buffered: a send waits for its receive.
/// If several stages hold a part, each waits at a reduction of the part until all of them
/// have reached it.
class Walk {
  public:
    /// All arguments must outlive the walk.
    Walk(const Schedule& schedule, const WorkIndex& index, const ScheduleTimes& times);

    /// Runs to the end. Returns false if, before the end, no instruction can run.
    bool run();

    /// Returns how many computations were done.
    int computations() const { return computations_; }
    /// Returns the instruction that a stage has reached; none at its end.
    Place at(int stage) const;
    bool done(Place place) const { return state(place) == State::done; }
    /// Returns a message that a stage has posted and that cannot run; none if there is
    /// none.
    Place stuck_message(int stage) const;
    /// Returns the undelivered message at the front of a posted message's queue; it may
    /// be the message itself.
    Place in_front_of(Place message) const;

    /// Returns when everything happened. Call it once, after run().
    Timing timing();

  private:
    enum class State : char { waits, delivered, done };

    /// The earliest time at which something can begin, and the instruction that it waited
    /// for last.
    struct Earliest {
        Picoseconds time = 0;
        Place cause;

        void after(Picoseconds end, Place place) {
            if (end <= time) return;
            time = end;
            cause = place;
        }
        void after(const Earliest& other) { after(other.time, other.cause); }
    };
    /// Messages that were posted together.
    struct Posted {
        Positions positions;
        int left = 0;    ///< not yet delivered
        Earliest begin;  ///< the earliest begin
        Earliest end;    ///< of the delivered messages
    };
    struct Queue {
        int peer = -1;  ///< the other stage, if queues are by direction
        bool sends = false;
        std::vector<Posted> posted;
        std::size_t served = 0;
        Earliest free;

        Posted* front() { return served == posted.size() ? nullptr : &posted[served]; }
        const Posted* front() const {
            return served == posted.size() ? nullptr : &posted[served];
        }
    };
    /// One end of a message, at the front of its queue.
    struct End {
        Place place;
        Queue& queue;
        Posted& posted;
    };
    struct Lane {
        int next = 0;        ///< in the stage's list
        Earliest computing;  ///< when the next computation can begin
        std::vector<Queue> queues;
        std::vector<int> waiting;  ///< stages that wait for this one
        bool ready = false;        ///< whether the stage is in `ready_`
        Picoseconds busy = 0;
        Picoseconds started = -1;  ///< the first computation's begin
    };

    Lane& lane(int stage) { return lanes_[stage]; }
    State state(Place place) const { return states_[place.stage][place.position]; }
    TimeSpan& span(Place place) { return timing_.spans[place.stage][place.position]; }
    void advance(int stage);
    void post(Positions positions, int stage);
    bool compute(Positions positions, int stage);
    bool meet(Place place);
    void serve(int stage, Queue& queue);
    void deliver(const End& send, const End& recv);
    bool settle(int stage, Queue& queue);
    void after_data(Earliest& start, Place need, Picoseconds way) const;
    Queue& queue_of(Place message);
    void enter(Place place, const Earliest& start, Picoseconds duration);
    void finish(Positions positions, int stage);
    void look_again(int stage);

    const Schedule& schedule_;
    const WorkIndex& index_;
    const ScheduleTimes& times_;
    bool messages_;
    std::vector<Lane> lanes_;
    std::vector<std::vector<State>> states_;
    std::vector<int> ready_;  ///< stages to look at again
    int computations_ = 0;
    Timing timing_;
};

}  // namespace lockstep
