#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "sim/check/activity.hpp"
#include "sim/check/check.hpp"
#include "sim/check/origin.hpp"
#include "sim/engine.hpp"
#include "sim/watcher.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::sim {

namespace {

/// Finds communicators that ranks use in opposite order (F12), even if the run passes.
///
/// In the engine, each communicator has its own resources. On GPUs, communicators share
/// the resources of a device. When these run short (or NCCL_LAUNCH_ORDER_IMPLICIT is
/// set), an operation runs only after all earlier operations of all communicators. So
/// this watcher repeats the launches of the run, with one queue per rank, which all
/// communicators share. A launch stays at the head of its queue until all of its
/// operations have met their partners, which must be at the heads of their queues. If
/// heads wait for each other in a circle, this order of launches can hang.
///
/// Whatever the order in which ranks take turns, the same operations meet, and the same
/// operations remain. Each operation is looked at once, and forgotten when it has met.
class OrderGraph final : public Watcher {
  public:
    explicit OrderGraph(const Engine& engine);

    void launched(Launch& launch) override;
    void quiet() override;
    void run_ended() override;

  private:
    /// An operation in its rank's queue.
    struct Entry {
        PastOperation what;
        int member = 0;    ///< the rank in its team
        int together = 0;  ///< operations of the launch; set in the first one
        bool met = false;
    };
    struct Queue {
        std::deque<Entry> entries;
        int undone = 0;  ///< operations of the head launch that have not met
    };
    /// An operation at the head of a queue.
    struct Place {
        int rank;
        int index;
    };
    /// Heads that wait for one collective, or for the partners of messages from one
    /// member to another, in order. The waiting messages are all sends, or all recvs.
    using Waiting = std::vector<Place>;

    static std::uint64_t collective_key(const PastOperation& what);
    /// The key of messages from one member to another.
    static std::uint64_t message_key(const PastOperation& what, int member);

    Entry& at(Place place);
    const Entry& head_open(int rank) const;
    /// Lets a head's operations meet their partners. Adds ranks whose heads are done.
    void arrive(int rank, std::vector<int>& done);
    void arrive(Place place, std::vector<int>& done);
    void meet(Place place, std::vector<int>& done);
    void advance(std::vector<int> done);

    /// A rank of a circle.
    struct Link {
        int rank;
        const Entry* first;  ///< at the head of its queue, waiting
        const Entry* later;  ///< behind `first`; the previous rank waits for it
    };
    const Entry* behind(int rank, const Entry& awaited) const;
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
    std::size_t patience_;  ///< how long a queue may get before it is checked
};

/// A circle never resolves, so it may be found late. A queue that grows this long is
/// probably stuck.
constexpr std::size_t kPatience = 4096;

std::uint64_t OrderGraph::collective_key(const PastOperation& what) {
    return static_cast<std::uint64_t>(what.team->id) << 40 | what.sequence;
}

std::uint64_t OrderGraph::message_key(const PastOperation& what, int member) {
    const bool sends = what.verb == Verb::send;
    const auto source = static_cast<std::uint64_t>(sends ? member : what.peer);
    const auto destination = static_cast<std::uint64_t>(sends ? what.peer : member);
    return static_cast<std::uint64_t>(what.team->id) << 40 | source << 20 | destination;
}

OrderGraph::OrderGraph(const Engine& engine)
    : engine_(engine), queues_(engine.ranks().size()), patience_(kPatience) {}

OrderGraph::Entry& OrderGraph::at(Place place) {
    return queues_[place.rank].entries[place.index];
}

void OrderGraph::launched(Launch& launch) {
    if (launch.posted.empty()) return;
    Queue& queue = queues_[launch.rank];
    const bool at_head = queue.entries.empty();
    for (const Posted& posted : launch.posted) {
        Entry& entry = queue.entries.emplace_back();
        entry.what = past_of(posted);
        entry.member = launch.member;
    }
    const std::size_t first = queue.entries.size() - launch.posted.size();
    queue.entries[first].together = static_cast<int>(launch.posted.size());
    longest_ = std::max(longest_, queue.entries.size());
    if (!at_head) return;
    std::vector<int> done;
    arrive(launch.rank, done);
    advance(std::move(done));
}

/// Removes heads that are done, and lets the next launches arrive, until no head is done.
void OrderGraph::advance(std::vector<int> done) {
    while (!done.empty()) {
        const int rank = done.back();
        done.pop_back();
        auto& entries = queues_[rank].entries;
        entries.erase(entries.begin(), entries.begin() + entries.front().together);
        if (!entries.empty()) arrive(rank, done);
    }
}

void OrderGraph::arrive(int rank, std::vector<int>& done) {
    Queue& queue = queues_[rank];
    const int together = queue.entries.front().together;
    queue.undone = together;
    for (int index = 0; index < together; ++index)
        arrive(Place{rank, index}, done);
}

void OrderGraph::arrive(Place place, std::vector<int>& done) {
    const Entry& entry = at(place);
    const PastOperation& what = entry.what;
    if (!is_point_to_point(what.verb)) {
        const auto waiting = collectives_.try_emplace(collective_key(what)).first;
        waiting->second.push_back(place);
        if (static_cast<int>(waiting->second.size()) < what.team->size()) return;
        const Waiting all = std::move(waiting->second);
        collectives_.erase(waiting);
        for (const Place& member : all)
            meet(member, done);
        return;
    }
    const auto waiting = messages_.try_emplace(message_key(what, entry.member)).first;
    Waiting& line = waiting->second;
    if (line.empty() || at(line.front()).what.verb == what.verb) {
        line.push_back(place);
        return;
    }
    const Place partner = line.front();
    line.erase(line.begin());
    if (line.empty()) messages_.erase(waiting);
    meet(place, done);
    meet(partner, done);
}

void OrderGraph::meet(Place place, std::vector<int>& done) {
    at(place).met = true;
    if (--queues_[place.rank].undone == 0) done.push_back(place.rank);
}

void OrderGraph::quiet() {
    if (longest_ < patience_) return;
    require_no_circle();
    longest_ = 0;
    for (const Queue& queue : queues_)
        longest_ = std::max(longest_, queue.entries.size());
    patience_ = std::max(kPatience, 2 * longest_);
}

void OrderGraph::run_ended() {
    require_no_circle();
}

/// Returns the first operation of the head launch that has not met its partners. The
/// queue must not be empty.
const OrderGraph::Entry& OrderGraph::head_open(int rank) const {
    const auto& entries = queues_[rank].entries;
    return *std::find_if(entries.begin(), entries.end(),
                         [](const Entry& entry) { return !entry.met; });
}

/// Returns the rank that the head of `rank` waits for: the lowest rank whose part of the
/// operation is not at the head of its own queue.
int OrderGraph::awaited_by(int rank) const {
    const Entry& open = head_open(rank);
    const Team& team = *open.what.team;
    if (is_point_to_point(open.what.verb)) return team.ranks[open.what.peer];
    const Waiting& here = collectives_.at(collective_key(open.what));
    std::vector<int> ranks = team.ranks;
    for (const Place& place : here)
        std::erase(ranks, place.rank);
    return *std::min_element(ranks.begin(), ranks.end());
}

/// Returns the awaited operation of `rank`, which is behind the head of its queue; null
/// if the operation has not been launched yet.
const OrderGraph::Entry* OrderGraph::behind(int rank, const Entry& awaited) const {
    const auto& entries = queues_[rank].entries;
    if (entries.empty()) return nullptr;
    const bool message = is_point_to_point(awaited.what.verb);
    const auto fits = [&](const Entry& entry) {
        if (entry.what.team != awaited.what.team || entry.met ||
            is_point_to_point(entry.what.verb) != message)
            return false;
        if (!message) return entry.what.sequence == awaited.what.sequence;
        return entry.what.verb != awaited.what.verb &&
               message_key(entry.what, entry.member) ==
                   message_key(awaited.what, awaited.member);
    };
    const auto found =
        std::find_if(entries.begin() + entries.front().together, entries.end(), fits);
    return found == entries.end() ? nullptr : &*found;
}

/// Returns heads that wait for each other: each waits for the next, and the last one for
/// the first. Empty if the waits end with a rank that has yet to launch an operation.
std::vector<OrderGraph::Link> OrderGraph::circle_from(int rank) const {
    std::vector<Link> path;
    std::vector<int> place(queues_.size(), -1);
    const Entry* awaited = nullptr;
    while (true) {
        const auto index = static_cast<std::size_t>(rank);
        if (queues_[index].entries.empty()) return {};
        const Entry* later = awaited == nullptr ? nullptr : behind(rank, *awaited);
        if (awaited != nullptr && later == nullptr) return {};
        if (place[index] >= 0) {
            path.erase(path.begin(), path.begin() + place[index]);
            path.front().later = later;
            return path;
        }
        place[index] = static_cast<int>(path.size());
        path.push_back({rank, &head_open(rank), later});
        awaited = path.back().first;
        rank = awaited_by(rank);
    }
}

std::string OrderGraph::sentence_of(const std::vector<Link>& circle) const {
    constexpr std::size_t kTold = 3;
    const std::size_t told = std::min(kTold, circle.size());
    const auto text = [](const Entry& entry) {
        return fmt::format("{} at {}", text_of(entry.what), entry.what.at.text());
    };
    std::string sentence;
    for (std::size_t i = 0; i < told; ++i)
        sentence +=
            fmt::format("{}rank {} launches {} before {}",
                        i == 0          ? ""
                        : i + 1 == told ? ", but "
                                        : ", ",
                        circle[i].rank, text(*circle[i].first), text(*circle[i].later));
    if (told == circle.size()) return sentence;
    return sentence + fmt::format(", and so on in a circle of {} ranks", circle.size());
}

Diagnosis OrderGraph::diagnosis_of_circle(const std::vector<Link>& circle) const {
    Diagnosis diagnosis = diagnosis_of("F12");
    diagnosis.sentence = sentence_of(circle);
    std::vector<std::string> names;
    for (const Link& link : circle) {
        for (const Entry* entry : {link.first, link.later}) {
            const char* const when = entry == link.first ? "first " : "then ";
            diagnosis.parties.push_back(
                party({link.rank}, when + text_of(entry->what), entry->what.at));
            const std::string& name = entry->what.team->name;
            if (std::find(names.begin(), names.end(), name) == names.end())
                names.push_back(name);
        }
    }
    for (const std::string& name : names)
        diagnosis.communicator += (name == names.front() ? "" : " and ") + name;
    diagnosis.details.push_back(
        "This run ended only because each communicator has its own resources here. On "
        "GPUs communicators share the resources of a device. If these run short, or with "
        "NCCL_LAUNCH_ORDER_IMPLICIT=1, each of these ranks blocks what the next one "
        "waits for, and all hang.");
    return diagnosis;
}

void OrderGraph::require_no_circle() const {
    for (std::size_t rank = 0; rank < queues_.size(); ++rank) {
        if (queues_[rank].entries.empty()) continue;
        const std::vector<Link> circle = circle_from(static_cast<int>(rank));
        if (!circle.empty()) throw FaultError(diagnosis_of_circle(circle));
    }
}

}  // namespace

std::unique_ptr<Watcher> watch_launch_order(Engine& engine) {
    return std::make_unique<OrderGraph>(engine);
}

}  // namespace lockstep::sim
