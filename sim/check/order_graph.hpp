#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/check/watcher.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

/// Finds communicators that ranks use in opposite order (F12), also where the run passes.
///
/// Communicators of the engine have resources of their own; on GPUs they share those of a
/// device, and when these run short (or NCCL_LAUNCH_ORDER_IMPLICIT is set) an operation
/// runs only after those that were launched before it on any communicator. So the run is
/// made again beside the engine's, with one queue a rank for all its communicators: what
/// was launched together stands at the head until all of it has met its partners at the
/// heads of theirs. Where heads wait for one another in a circle, the order of launches
/// is one that can hang.
///
/// Which operations meet is the same in every order in which ranks launch, so what is
/// left standing is too. Each operation is looked at once; what has met is forgotten.
class OrderGraph final : public Watcher {
  public:
    explicit OrderGraph(const Engine& engine);

    void launched(Batch& batch) override;
    void quiet() override;
    void run_ended() override;

  private:
    /// An operation in its rank's queue.
    struct Launch {
        Past what;
        int member = 0;    ///< the rank in its team
        int together = 0;  ///< of the first of a batch: how many were launched
        bool met = false;
    };
    struct Queue {
        std::deque<Launch> launches;
        int undone = 0;  ///< of those at the head
    };
    /// An operation at the head of a queue.
    struct Place {
        int rank;
        int index;
    };
    /// What waits at the heads for one collective, or for the partners of messages from
    /// one member to another, in order; of these there are sends or recvs, never both.
    using Waiting = std::vector<Place>;

    static std::uint64_t collective_key(const Past& what);
    /// Of messages from one member to another.
    static std::uint64_t message_key(const Past& what, int member);

    Launch& at(Place place);
    const Launch& head_open(int rank) const;
    /// The head's operations look for their partners; adds ranks whose heads are done.
    void arrive(int rank, std::vector<int>& done);
    void arrive(Place place, std::vector<int>& done);
    void meet(Place place, std::vector<int>& done);
    void advance(std::vector<int> done);

    /// A rank of a circle.
    struct Link {
        int rank;
        const Launch* first;  ///< at the head of its queue, waiting
        const Launch* later;  ///< behind it: what the rank before waits for
    };
    const Launch* behind(int rank, const Launch& awaited) const;
    int awaited_by(int rank) const;
    std::vector<Link> circle_from(int rank) const;
    std::string sentence_of(const std::vector<Link>& circle) const;
    Diagnosis diagnosis_of_circle(const std::vector<Link>& circle) const;
    void require_no_circle() const;

    const Engine& engine_;
    std::vector<Queue> queues_;  ///< by rank
    std::unordered_map<std::uint64_t, Waiting> collectives_;
    std::unordered_map<std::uint64_t, Waiting> messages_;
    std::size_t longest_ = 0;
    std::size_t patience_;  ///< how long a queue may get before somebody looks
};

}  // namespace lockstep::sim
