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
#include "src/device/monitor.hpp"

namespace lockstep::sim {

class Engine;
class Launch;
struct Team;

/// One operation that a rank launched.
struct Posted {
    Posted(Launch& in, std::uint64_t number, CommOperation&& asked)
        : launch(&in), sequence(number), operation(std::move(asked)) {}

    /// Returns the program's own line of the call: that of the module or the strategy
    /// that made it, if one did.
    SourceLine line() const;

    Launch* launch;
    Posted* partner = nullptr;  ///< the matching recv or send, once both are open
    /// Its number, from 0, among this rank's collectives of the communicator or, for a
    /// send or recv, among this rank's sends and recvs of the communicator.
    std::uint64_t sequence;
    bool done = false;
    CommOperation operation;
};

/// An operation that a rank launched, kept after it is done, for diagnoses.
struct PastOperation : CommRequest {
    const Team* team = nullptr;
    std::uint64_t sequence = 0;  ///< as in Posted
    SourceLine called_from{};    ///< as in Launch
};
PastOperation past_of(const Posted& posted);

inline SourceLine line_of(const PastOperation& past) {
    return past.called_from.line > 0 ? past.called_from : past.at;
}

/// Operations that a rank launched together. One Work waits for all of them.
///
/// On each rank, a communicator's launches have an order. The first launch is open: its
/// operations look for their partners. The other launches queue behind it. When all
/// operations of a launch are done, it closes, and the next one opens.
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
    SourceLine
        called_from;  ///< the open call's line; none if the program itself launched
    Phase phase = Phase::none;      ///< of the rank, when it launched
    int micro_batch = -1;           ///< as above
    int step = 0;                   ///< as above
    std::uint64_t number = 0;       ///< in its member's queue, from 1
    std::uint64_t rank_number = 0;  ///< among all launches of its rank, with copies
    std::vector<Posted> posted;
    /// Indices into `posted`, sorted by (verb, peer, index); empty if there are few
    /// operations.
    std::vector<std::int32_t> by_peer;
    State state = State::queued;
    int undone = 0;  ///< operations not done
    int undone_sends = 0;
    int undone_recvs = 0;
    bool counted = false;    ///< in RankState::message_launches
    int traced = -1;         ///< number of its event in the trace, once it is closed
    Picoseconds issued = 0;  ///< when the device's earlier operations were done
    Picoseconds opened = 0;
    Picoseconds started = 0;  ///< when its first operation began
    Picoseconds end = 0;
    Picoseconds turn = 0;     ///< when its collectives so far are done
    Picoseconds latency = 0;  ///< the longest latency of these collectives, paid once
    Launch* next = nullptr;   ///< the launch behind it in its member's queue

    bool is_copy() const;
    bool has_messages() const { return undone_sends + undone_recvs > 0; }
    /// Returns whether the program has a Work that can still wait for this launch.
    bool is_held() const { return references() > (state == State::closed ? 0 : 1); }
    /// Returns whether a Work or a queue refers to this launch.
    bool is_used() const { return references() > 0; }

    void index_by_peer();
    /// Returns the first send to `peer`, or recv from it, that has no partner; else null.
    Posted* unpaired(Verb verb, int peer);

  private:
    void release() noexcept override;
};

/// Launches are reused. If a program still has a launch's Work when the run ends, the
/// launch lives as long as the Work.
class LaunchPool {
  public:
    explicit LaunchPool(Engine& engine) : engine_(engine) {}
    ~LaunchPool();
    LaunchPool(const LaunchPool&) = delete;
    LaunchPool& operator=(const LaunchPool&) = delete;

    Launch* take();
    /// Returns all launches, used and free ones.
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
    CommRequest operation;  ///< the first one
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
    /// The launches that are done but were not waited for, in order; null if there are
    /// none. (Launches from `first` on are not done.) A wait for a launch also waits for
    /// all earlier ones.
    std::unique_ptr<std::vector<Unwaited>> unwaited;

    /// Records a launch that is done but not waited for. Its operations must still exist.
    void note_unwaited(const Launch& launch);
    /// The rank has waited for launch `number`, and so for all earlier launches.
    void note_waited(std::uint64_t number) {
        waited = std::max(waited, number);
        if (unwaited != nullptr) forget_waited();
    }

  private:
    void forget_waited();
};

/// Counts a member's messages to each other member, without the parts of an all_to_all_v.
/// Gives up after seven peers, more than a pipeline stage has. deadlock.cpp uses these
/// counts to classify circles of waits.
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

    /// Returns nothing if the member has sent to too many peers.
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

/// When a rank got a communicator, and whether it was destroyed.
struct Lifetime {
    SourceLine made_at;  ///< none for world
    bool went = false;   ///< the rank has destroyed it
};

struct Team;

/// Returns whether two members with these calls can be in one collective. The calls must
/// be the same. In a sum, the tensors' names must not be those of different parameters,
/// or of different parts of one parameter. Different names are allowed if the team's
/// ranks have declared both (such as a table that is tied to a head).
bool can_meet(const Team& team, const CommOperation& a, const CommOperation& b);

/// A collective for which members are arriving.
struct Meeting {
    std::vector<Posted*> arrived;  ///< by member; null if it is missing
    Posted* first = nullptr;       ///< the first to arrive, in the host's order
    int present = 0;
    bool differs = false;  ///< its operations differ, so it never ends
    bool unlike = false;   ///< its members are at different lines of the program
    bool listed = false;   ///< the engine has listed it as able to end
};

/// A collective that ranks called from different lines of the program, and what they
/// called.
struct UnlikeLines {
    struct Side {
        SourceLine line;
        std::string call;
        std::vector<int> ranks;
    };
    std::uint64_t sequence = 0;
    std::vector<Side> sides;
};

/// A communicator: the data that all of its ranks share.
struct Team {
    int id = 0;
    std::string name;
    std::vector<int> ranks;  ///< by member
    /// The most ranks on a node that are in the groups of one split, this one among them;
    /// 0 if no other group was made beside it.
    int sharers = 0;
    bool copies = false;  ///< a queue of copies between one rank's device and host
    std::vector<Member> members;
    std::vector<Lifetime> lifetimes;  ///< by member
    /// By member, without the last `shared_calls`: call settle_counts() first.
    std::vector<TrafficByVerb> counts;
    std::vector<SentMessages> sent;     ///< by member
    CollectiveCall shared_call{};       ///< the last collective
    std::int64_t shared_calls = 0;      ///< its calls that are not in `counts` yet
    std::vector<TrafficByLink> shares;  ///< by member: what each shared_call adds
    std::uint64_t first_meeting = 0;    ///< sequence of meetings.front()
    std::deque<Meeting> meetings;
    std::vector<UnlikeLines> unlike;  ///< the first collectives with each pair of lines
    std::set<std::string> declared;   ///< names of replicas that its ranks hold

    int size() const { return static_cast<int>(ranks.size()); }
    /// Returns the member number of a rank of the run; -1 if it is not in this team.
    int member_of(int rank) const;
    bool has(int rank) const { return member_of(rank) >= 0; }

    /// Counts what each member exchanges in a collective, by the class of each link. The
    /// call itself counts once, as a call inside a node. Equal calls in a row are added
    /// to `counts` together: when a different call comes, or in settle_counts().
    void count_collective(const CollectiveCall& call, const ClusterSpec& spec);
    /// Adds the calls that are not in `counts` yet.
    void settle_counts();
};

inline SourceLine Posted::line() const {
    return launch->called_from.line > 0 ? launch->called_from : operation.at;
}

inline bool Launch::is_copy() const {
    return team->copies;
}

inline PastOperation past_of(const Posted& posted) {
    return {posted.operation, posted.launch->team, posted.sequence,
            posted.launch->called_from};
}

/// Returns the collective of a posted operation, which must not be done yet.
inline const Meeting& meeting_of(const Posted& posted) {
    const Team& team = *posted.launch->team;
    return team.meetings[posted.sequence - team.first_meeting];
}

/// Moves and combines the values of a collective whose members have all arrived, with the
/// devices' own operations. Sums are made in the order of a ring: chunk c starts at rank
/// c + 1 and ends at rank c. A reduce starts after the root and ends at the root. A mean
/// is the sum times 1/n.
void compute(const std::vector<Posted*>& members);

}  // namespace lockstep::sim
