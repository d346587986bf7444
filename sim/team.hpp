#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"
#include "src/cost/traffic.hpp"

namespace lockstep::sim {

class Engine;
class Batch;
struct Team;

/// One operation that a rank launched.
struct Posted {
    Posted(Batch& in, std::uint64_t number, CommOperation&& asked)
        : batch(&in), sequence(number), operation(std::move(asked)) {}

    Batch* batch;
    Posted* partner = nullptr;  ///< of a send or recv, once both are there
    /// Its place among the collectives of its communicator, from 0; of a send or recv,
    /// among this rank's sends and recvs.
    std::uint64_t sequence;
    bool done = false;
    CommOperation operation;
};

/// Operations that a rank launched together, and what Work waits for.
///
/// A communicator's batches are in order on each rank: the first is open, that is, its
/// operations look for their partners; the rest queue behind it. When all its operations
/// are done it closes, and the next one opens.
class Batch final : public PendingWork {
  public:
    enum class State : std::uint8_t { queued, open, closed };

    void wait(SourceLine at) override;

    Engine* engine = nullptr;  ///< null once the run is over
    Team* team = nullptr;
    int member = 0;  ///< the rank in its team
    int rank = 0;    ///< the rank in the run
    SourceLine at;
    std::vector<Posted> posted;
    /// Places in `posted` of sends and recvs sorted by (verb, peer, place), where there
    /// are many.
    std::vector<std::int32_t> by_peer;
    State state = State::queued;
    int undone = 0;  ///< operations not done
    int undone_sends = 0;
    int undone_recvs = 0;
    bool counted = false;    ///< among its rank's batches with messages
    Picoseconds issued = 0;  ///< when what the device issued before was done
    Picoseconds opened = 0;
    Picoseconds started = 0;  ///< when its first operation began to move
    Picoseconds end = 0;
    Picoseconds turn = 0;   ///< when its collectives so far are done: the next one's turn
    Batch* next = nullptr;  ///< behind it in its member's queue
    Batch* pool_next = nullptr;
    Batch* pool_previous = nullptr;

    bool has_messages() const { return undone_sends + undone_recvs > 0; }

    void index_by_peer();
    /// The first send to, or recv from, `peer` without a partner; none is null.
    Posted* unpaired(Verb verb, int peer);

  private:
    void release() noexcept override;
};

/// Batches are used again and again. One that a program still holds when the run ends
/// lives on by itself.
class BatchPool {
  public:
    explicit BatchPool(Engine& engine) : engine_(engine) {}
    ~BatchPool();
    BatchPool(const BatchPool&) = delete;
    BatchPool& operator=(const BatchPool&) = delete;

    Batch* take();
    void give_back(Batch* batch) noexcept;

  private:
    Engine& engine_;
    Batch* in_use_ = nullptr;
    std::vector<Batch*> free_;
};

/// A rank's side of a communicator.
struct Member {
    Batch* first = nullptr;  ///< the open batch
    Batch* last = nullptr;
    Picoseconds free_at = 0;
    std::uint64_t collectives = 0;  ///< launched so far
    std::uint64_t messages = 0;
};

/// A collective that members are arriving for.
struct Meeting {
    std::vector<Posted*> arrived;  ///< by member; null where it has not come
    Posted* first = nullptr;       ///< the one that came first, on the host's clock
    int present = 0;
    bool differs = false;  ///< the operations do not match: it never ends
    bool listed = false;   ///< the engine knows that it can end
};

/// What the ranks of a communicator share.
struct Team {
    int id = 0;
    std::string name;
    std::vector<int> ranks;  ///< by member
    std::vector<Member> members;
    std::vector<TrafficByVerb> counts;  ///< by member
    CollectiveCall shared_call{};
    std::vector<TrafficByLink> shares;  ///< by member, what shared_call adds
    std::uint64_t first_meeting = 0;    ///< sequence of meetings.front()
    std::deque<Meeting> meetings;

    int size() const { return static_cast<int>(ranks.size()); }
};

/// The collective that the posted operation, which is not done, is a part of.
inline const Meeting& meeting_of(const Posted& posted) {
    const Team& team = *posted.batch->team;
    return team.meetings[static_cast<std::size_t>(posted.sequence - team.first_meeting)];
}

}  // namespace lockstep::sim
