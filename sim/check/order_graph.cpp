#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "sim/check/activity.hpp"
#include "sim/check/check.hpp"
#include "sim/engine.hpp"
#include "sim/watcher.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::sim {

namespace {

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

/// A circle stays one, so it is as well found late. Queues that grow this long are likely
/// to stand still.
constexpr std::size_t kPatience = 4096;

std::uint64_t OrderGraph::collective_key(const Past& what) {
    return static_cast<std::uint64_t>(what.team->id) << 40 | what.sequence;
}

std::uint64_t OrderGraph::message_key(const Past& what, int member) {
    const bool sends = what.verb == Verb::send;
    const auto source = static_cast<std::uint64_t>(sends ? member : what.peer);
    const auto destination = static_cast<std::uint64_t>(sends ? what.peer : member);
    return static_cast<std::uint64_t>(what.team->id) << 40 | source << 20 | destination;
}

OrderGraph::OrderGraph(const Engine& engine)
    : engine_(engine), queues_(engine.ranks().size()), patience_(kPatience) {}

OrderGraph::Launch& OrderGraph::at(Place place) {
    return queues_[place.rank].launches[place.index];
}

void OrderGraph::launched(Batch& batch) {
    if (batch.posted.empty()) return;
    Queue& queue = queues_[batch.rank];
    const bool at_head = queue.launches.empty();
    for (const Posted& posted : batch.posted) {
        Launch& launch = queue.launches.emplace_back();
        launch.what = past_of(posted);
        launch.member = batch.member;
    }
    const std::size_t first = queue.launches.size() - batch.posted.size();
    queue.launches[first].together = static_cast<int>(batch.posted.size());
    longest_ = std::max(longest_, queue.launches.size());
    if (!at_head) return;
    std::vector<int> done;
    arrive(batch.rank, done);
    advance(std::move(done));
}

/// Heads that are done make room for the next ones, until none is.
void OrderGraph::advance(std::vector<int> done) {
    while (!done.empty()) {
        const int rank = done.back();
        done.pop_back();
        auto& launches = queues_[rank].launches;
        launches.erase(launches.begin(), launches.begin() + launches.front().together);
        if (!launches.empty()) arrive(rank, done);
    }
}

void OrderGraph::arrive(int rank, std::vector<int>& done) {
    Queue& queue = queues_[rank];
    const int together = queue.launches.front().together;
    queue.undone = together;
    for (int index = 0; index < together; ++index)
        arrive(Place{rank, index}, done);
}

void OrderGraph::arrive(Place place, std::vector<int>& done) {
    const Launch& launch = at(place);
    const Past& what = launch.what;
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
    const auto waiting = messages_.try_emplace(message_key(what, launch.member)).first;
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
        longest_ = std::max(longest_, queue.launches.size());
    patience_ = std::max(kPatience, 2 * longest_);
}

void OrderGraph::run_ended() {
    require_no_circle();
}

/// At the head of a queue that is not empty, the first that has not met its partners.
const OrderGraph::Launch& OrderGraph::head_open(int rank) const {
    const auto& launches = queues_[rank].launches;
    return *std::find_if(launches.begin(), launches.end(),
                         [](const Launch& launch) { return !launch.met; });
}

/// The lowest rank that keeps the rank's head: its part of the operation is not at the
/// head of its queue.
int OrderGraph::awaited_by(int rank) const {
    const Launch& open = head_open(rank);
    const Team& team = *open.what.team;
    if (is_point_to_point(open.what.verb)) return team.ranks[open.what.peer];
    const Waiting& here = collectives_.at(collective_key(open.what));
    std::vector<int> ranks = team.ranks;
    for (const Place& place : here)
        std::erase(ranks, place.rank);
    return *std::min_element(ranks.begin(), ranks.end());
}

/// The part of `rank` in what another awaits, behind the head of its queue; null where it
/// has not launched that yet.
const OrderGraph::Launch* OrderGraph::behind(int rank, const Launch& awaited) const {
    const auto& launches = queues_[rank].launches;
    if (launches.empty()) return nullptr;
    const bool message = is_point_to_point(awaited.what.verb);
    const auto fits = [&](const Launch& launch) {
        if (launch.what.team != awaited.what.team || launch.met ||
            is_point_to_point(launch.what.verb) != message)
            return false;
        if (!message) return launch.what.sequence == awaited.what.sequence;
        return launch.what.verb != awaited.what.verb &&
               message_key(launch.what, launch.member) ==
                   message_key(awaited.what, awaited.member);
    };
    const auto found =
        std::find_if(launches.begin() + launches.front().together, launches.end(), fits);
    return found == launches.end() ? nullptr : &*found;
}

/// Heads that wait for one another, each for the next and the last for the first; none
/// where the waits end with a rank that has yet to launch something.
std::vector<OrderGraph::Link> OrderGraph::circle_from(int rank) const {
    std::vector<Link> path;
    std::vector<int> place(queues_.size(), -1);
    const Launch* awaited = nullptr;
    while (true) {
        const auto index = static_cast<std::size_t>(rank);
        if (queues_[index].launches.empty()) return {};
        const Launch* later = awaited == nullptr ? nullptr : behind(rank, *awaited);
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
    const auto text = [](const Launch& launch) {
        return fmt::format("{} at {}", text_of(launch.what), launch.what.at.text());
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
        for (const Launch* launch : {link.first, link.later}) {
            const char* const when = launch == link.first ? "first " : "then ";
            diagnosis.parties.push_back(
                {{link.rank}, when + text_of(launch->what), "", launch->what.at, {}});
            const std::string& name = launch->what.team->name;
            if (std::find(names.begin(), names.end(), name) == names.end())
                names.push_back(name);
        }
    }
    for (const std::string& name : names)
        diagnosis.communicator += (name == names.front() ? "" : " and ") + name;
    diagnosis.details.push_back(
        "This run came through only because here each communicator has resources of its "
        "own. On GPUs they share those of a device: when these run short, or with "
        "NCCL_LAUNCH_ORDER_IMPLICIT=1, each of these ranks holds what the next one waits "
        "for, and all hang.");
    return diagnosis;
}

void OrderGraph::require_no_circle() const {
    for (std::size_t rank = 0; rank < queues_.size(); ++rank) {
        if (queues_[rank].launches.empty()) continue;
        const std::vector<Link> circle = circle_from(static_cast<int>(rank));
        if (!circle.empty()) throw FaultError(diagnosis_of_circle(circle));
    }
}

}  // namespace

std::unique_ptr<Watcher> watch_launch_order(Engine& engine) {
    return std::make_unique<OrderGraph>(engine);
}

}  // namespace lockstep::sim
