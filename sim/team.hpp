#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"

namespace lockstep::sim {

class Engine;
class Launch;
struct Team;

/// One operation that a rank launched.
struct Posted {
    Posted(Launch& in, std::uint64_t number, CommOperation&& asked)
        : launch(&in), sequence(number), operation(std::move(asked)) {}

    Launch* launch;
    Posted* partner = nullptr;  ///< of a send or recv, once both are there
    /// Its place among the collectives of its communicator, from 0; of a send or recv,
    /// among this rank's sends and recvs.
    std::uint64_t sequence;
    bool done = false;
    CommOperation operation;
};

/// An operation that a rank launched, kept after it is done, for diagnoses.
struct PastOperation : CommRequest {
    const Team* team = nullptr;
    std::uint64_t sequence = 0;  ///< as Posted's
};
PastOperation past_of(const Posted& posted);

/// Operations that a rank launched together, and what Work waits for.
///
/// A communicator's launches are in order on each rank: the first is open, that is, its
/// operations look for their partners; the rest queue behind it. When all its operations
/// are done it closes, and the next one opens.
class Launch final : public PendingWork {
  public:
    enum class State : std::uint8_t { queued, open, closed };

    void wait(SourceLine at) override;
    std::size_t wait_any(std::span<PendingWork* const> works, SourceLine at) override;

    Engine* engine = nullptr;  ///< null once the run is over
    Team* team = nullptr;
    int member = 0;  ///< the rank in its team
    int rank = 0;    ///< the rank in the run
    SourceLine at;
    std::uint64_t number = 0;       ///< in its member's queue, from 1
    std::uint64_t rank_number = 0;  ///< among all launches of its rank, copies too
    std::vector<Posted> posted;
    /// Places in `posted` of sends and recvs sorted by (verb, peer, place), if there are
    /// many.
    std::vector<std::int32_t> by_peer;
    State state = State::queued;
    int undone = 0;  ///< operations not done
    int undone_sends = 0;
    int undone_recvs = 0;
    bool counted = false;    ///< among its rank's launches with messages
    int traced = -1;         ///< number of its event in the trace, once it is closed
    Picoseconds issued = 0;  ///< when what the device issued before was done
    Picoseconds opened = 0;
    Picoseconds started = 0;  ///< when its first operation began to move
    Picoseconds end = 0;
    Picoseconds turn = 0;  ///< when its collectives so far are done: the next one's turn
    Picoseconds latency = 0;  ///< of these: the longest one's, which it pays once
    Launch* next = nullptr;   ///< behind it in its member's queue

    bool is_copy() const;
    bool has_messages() const { return undone_sends + undone_recvs > 0; }
    /// Returns whether the program has a Work of it that it can still wait for.
    bool is_held() const { return references() > (state == State::closed ? 0 : 1); }
    /// Returns whether anyone knows it: a Work, or its queue.
    bool is_used() const { return references() > 0; }

    void index_by_peer();
    /// The first send to, or recv from, `peer` without a partner; none is null.
    Posted* unpaired(Verb verb, int peer);

  private:
    void release() noexcept override;
};

/// Launches are used again and again. One that a program still holds when the run ends
/// lives on by itself.
class LaunchPool {
  public:
    explicit LaunchPool(Engine& engine) : engine_(engine) {}
    ~LaunchPool();
    LaunchPool(const LaunchPool&) = delete;
    LaunchPool& operator=(const LaunchPool&) = delete;

    Launch* take();
    /// Returns those that are used and those that are not.
    const std::vector<Launch*>& all() const { return all_; }
    void give_back(Launch* launch) noexcept;

  private:
    Engine& engine_;
    std::vector<Launch*> all_;
    std::vector<Launch*> free_;
};

/// A launch that is done, but that its rank has not waited for.
struct Unwaited {
    std::uint64_t number = 0;    ///< the launch's
    std::uint64_t sequence = 0;  ///< of its first operation
    std::size_t operations = 0;
    CommRequest operation;  ///< its first one
};

/// A rank's side of a communicator. One cache line: every operation touches it.
struct Member {
    Launch* first = nullptr;  ///< the open launch
    Launch* last = nullptr;
    Picoseconds free_at = 0;
    std::uint64_t collectives = 0;  ///< launched so far
    std::uint64_t messages = 0;
    std::uint64_t launches = 0;
    std::uint64_t waited = 0;  ///< number of the last launch that was waited for
    /// They are in order; null if there are none. Launches that are not done, from
    /// `first` on, were not waited for either. Waiting for a launch is waiting for all
    /// before it.
    std::unique_ptr<std::vector<Unwaited>> unwaited;

    /// The launch is done, and still knows its operations; its rank does not wait for it.
    void note_unwaited(const Launch& launch);
    /// The rank has waited for its launch `number`, and so for those before.
    void note_waited(std::uint64_t number) {
        waited = std::max(waited, number);
        if (unwaited != nullptr) forget_waited();
    }

  private:
    void forget_waited();
};

/// Counts the messages that a member has sent to each other one, without parts of an
/// all_to_all_v. It gives up if there are more others than a stage has neighbours. A
/// circle of waits is judged by it: see deadlock.cpp.
class alignas(64) SentMessages {  // one cache line: every message touches it
  public:
    void note(int peer) {
        const auto end = to_.begin() + known_;
        auto place =
            std::find_if(to_.begin(), end, [&](const Sent& s) { return s.peer == peer; });
        if (place == to_.end()) {
            few_ = false;
            return;
        }
        if (place == end) to_[known_++].peer = peer;
        ++place->messages;
    }

    /// Returns nothing if the member has sent to too many to count.
    std::optional<std::int64_t> to(int peer) const {
        if (!few_) return std::nullopt;
        for (int i = 0; i < known_; ++i)
            if (to_[i].peer == peer) return to_[i].messages;
        return 0;
    }

  private:
    struct Sent {
        int peer = 0;
        std::uint32_t messages = 0;
    };
    std::array<Sent, 7> to_{};
    int known_ = 0;
    bool few_ = true;
};

/// From when to when a rank has a communicator.
struct Lifetime {
    SourceLine made_at;  ///< none for world
    bool went = false;   ///< the rank has let go of it
};

struct Team;

/// Returns whether members who bring these can be one collective: the same call, and if
/// it adds up, nothing that is named after different parameters, unless the team's ranks
/// have declared both (a table that is tied to a head of another name), or after
/// different parts of one.
bool can_meet(const Team& team, const CommOperation& a, const CommOperation& b);

/// A collective that members are arriving for.
struct Meeting {
    std::vector<Posted*> arrived;  ///< by member; null if it has not come
    Posted* first = nullptr;       ///< the one that came first, on the host's clock
    int present = 0;
    bool differs = false;  ///< the operations do not match: it never ends
    bool listed = false;   ///< the engine knows that it can end
};

/// A communicator, as all of its ranks share it.
struct Team {
    int id = 0;
    std::string name;
    std::vector<int> ranks;  ///< by member
    bool copies = false;     ///< between a device and its host, of one rank
    std::vector<Member> members;
    std::vector<Lifetime> lifetimes;  ///< by member
    /// By member; without the last `shared_calls`, so that readers settle_counts() first.
    std::vector<TrafficByVerb> counts;
    std::vector<SentMessages> sent;     ///< by member
    CollectiveCall shared_call{};       ///< the last one
    std::int64_t shared_calls = 0;      ///< of these, not in `counts` yet
    std::vector<TrafficByLink> shares;  ///< by member, what shared_call adds
    std::uint64_t first_meeting = 0;    ///< sequence of meetings.front()
    std::deque<Meeting> meetings;
    std::set<std::string> declared;  ///< names of replicas that its ranks hold

    int size() const { return static_cast<int>(ranks.size()); }
    /// Returns the number of a rank of the run in this team; -1 if it is none of its.
    int member_of(int rank) const;
    bool has(int rank) const { return member_of(rank) >= 0; }

    /// Counts what each member exchanges in a collective, by the class of each link. The
    /// call itself counts once, among those inside a node. Most calls are made again and
    /// again: they are added to `counts` when another one comes, or all is settled.
    void count_collective(const CollectiveCall& call, const ClusterSpec& spec);
    /// Adds what is counted and not in `counts` yet.
    void settle_counts();
};

inline bool Launch::is_copy() const {
    return team->copies;
}

inline PastOperation past_of(const Posted& posted) {
    return {posted.operation, posted.launch->team, posted.sequence};
}

/// Returns the collective that the posted operation, which is not done, is a part of.
inline const Meeting& meeting_of(const Posted& posted) {
    const Team& team = *posted.launch->team;
    return team.meetings[posted.sequence - team.first_meeting];
}

/// Moves and combines the values of a collective for which every member has arrived,
/// through the devices' own operations. Sums are made in the order in which a ring makes
/// them: chunk c starts at rank c + 1 and ends at rank c; a reduce starts after the root
/// and ends there. A mean is the sum scaled by 1/n.
void compute(const std::vector<Posted*>& members);

}  // namespace lockstep::sim
