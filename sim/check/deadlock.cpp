// Explains why no rank can run: who waits for whom, in which circle, and which class of
// mistake that is (F07, F10 to F14).

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/check/activity.hpp"
#include "sim/check/check.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/out_of_step.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

/// A chain of ranks: each waits for the next. The last rank waits for the first (a
/// circle), or has ended.
struct Chain {
    std::vector<Activity> links;
    bool circle = false;
};

/// Follows the waits from a rank until they end or form a circle. If a rank waits for an
/// ended rank, follows the ended rank, which is the cause. Otherwise follows the first
/// rank that it waits for.
Chain follow(const Engine& engine, int start) {
    Chain chain;
    std::vector<int> place(engine.ranks().size(), -1);
    int rank = start;
    const Team* team = nullptr;  // the previous link waits for `rank` on this team
    while (place[rank] < 0) {
        place[rank] = static_cast<int>(chain.links.size());
        chain.links.push_back(team == nullptr ? activity_of(engine, rank)
                                              : activity_in(engine, rank, *team));
        const Activity& link = chain.links.back();
        if (link.ended() || link.awaits.empty()) return chain;
        team = link.posted->launch->team;
        const auto gone =
            std::find_if(link.awaits.begin(), link.awaits.end(), [&](int awaited) {
                return engine.ranks()[awaited]->ended &&
                       activity_in(engine, awaited, *team).ended();
            });
        rank = gone == link.awaits.end() ? link.awaits.front() : *gone;
    }
    chain.circle = true;
    chain.links.erase(chain.links.begin(), chain.links.begin() + place[rank]);
    return chain;
}

/// Returns the ranks that wait in the link's collective, including the link's rank. For a
/// message, returns only the link.
std::vector<Activity> together_with(const Engine& engine, const Activity& link) {
    if (is_point_to_point(link.posted->operation.verb)) return {link};
    std::vector<Activity> all;
    for (const int rank : sorted_ranks(*link.posted->launch->team)) {
        Activity activity = activity_of(engine, rank);
        const bool same = !activity.ended() &&
                          activity.posted->launch->team == link.posted->launch->team &&
                          activity.posted->sequence == link.posted->sequence &&
                          !is_point_to_point(activity.posted->operation.verb);
        if (same || rank == link.rank) all.push_back(rank == link.rank ? link : activity);
    }
    return all;
}

std::vector<int> ranks_of(const std::vector<Activity>& links) {
    std::vector<int> ranks;
    std::transform(links.begin(), links.end(), std::back_inserter(ranks),
                   [](const Activity& link) { return link.rank; });
    return ranks;
}

/// "ranks 0–3 in barrier() #0 of dp at train.cpp:12".
std::string wait_text(const std::vector<int>& ranks, const Activity& link) {
    return fmt::format("{} in {} at {}", ranks_text(ranks), text_of(*link.posted),
                       where(*link.posted));
}

using Exchanged = std::optional<std::pair<std::int64_t, std::int64_t>>;

/// Returns how many messages ranks `a` and `b` have sent to each other over the
/// communicators of the circle; nothing if a rank has sent to too many peers to count.
Exchanged exchanged(const Chain& chain, int a, int b) {
    std::set<const Team*> teams;
    for (const Activity& link : chain.links)
        teams.insert(link.posted->launch->team);
    std::pair<std::int64_t, std::int64_t> sent;
    for (const Team* const team : teams) {
        const int first = team->member_of(a);
        const int second = team->member_of(b);
        if (first < 0 || second < 0) continue;
        const auto forth = team->sent[first].to(second);
        const auto back = team->sent[second].to(first);
        if (!forth || !back) return std::nullopt;
        sent.first += *forth;
        sent.second += *back;
    }
    return sent;
}

/// Returns whether neighbours in the circle have exchanged different numbers of messages.
/// If all ranks do the same, as in a ring or a swap of two ranks, each has sent the same
/// number of messages to the next rank. A pipeline stage that is ahead has sent more
/// activations to the next stage than it has received gradients from it.
bool exchanged_unlike(const Chain& chain) {
    std::set<Exchanged> seen;
    for (std::size_t i = 0; i < chain.links.size(); ++i)
        seen.insert(exchanged(chain, chain.links[i].rank,
                              chain.links[(i + 1) % chain.links.size()].rank));
    return seen.size() > 1 && seen.count(std::nullopt) == 0;
}

/// Returns whether some ranks of the circle are in a forward and others in a backward, if
/// the program marks its phases.
bool at_unlike_phases(const Engine& engine, const Chain& chain) {
    const auto any = [&](auto&& is) {
        return std::any_of(chain.links.begin(), chain.links.end(), [&](const auto& link) {
            return is(engine.ranks()[link.rank]->virtual_device.latest_phase());
        });
    };
    return any([](Phase phase) { return phase == Phase::forward; }) &&
           any([](Phase phase) {
               return phase == Phase::backward || phase == Phase::backward_input ||
                      phase == Phase::backward_weight;
           });
}

/// Returns whether the ranks of a circle of messages are pipeline stages. Each stage
/// follows its own order. In a ring or an exchange all ranks do the same: they have
/// exchanged the same numbers of messages, and are in the same phase.
bool is_pipeline(const Engine& engine, const Chain& chain) {
    const bool is_exchange = std::any_of(
        chain.links.begin(), chain.links.end(),
        [](const Activity& link) { return link.posted->operation.all_to_all_v; });
    return !is_exchange && (exchanged_unlike(chain) || at_unlike_phases(engine, chain));
}

/// Returns whether `is_it` is true for one of the rank's last calls before `call` on the
/// same communicator.
template <typename IsIt>
bool has_made(const Engine& engine, int rank, const Posted& call, IsIt&& is_it) {
    const RankState& state = *engine.ranks()[rank];
    const std::uint64_t kept =
        std::min<std::uint64_t>(state.launched, RankState::kHistory);
    for (std::uint64_t i = state.launched - kept; i < state.launched; ++i) {
        const PastOperation& past = state.history[i % RankState::kHistory];
        if (past.team == call.launch->team && past.sequence < call.sequence &&
            is_it(past, call))
            return true;
    }
    return false;
}

/// Returns whether a rank has passed the line at which the next rank waits, but itself
/// waits at a call that the next rank has not made. Ranks that repeat the same calls in
/// different orders have each made both calls before.
bool is_divergence(const Engine& engine, const Chain& chain) {
    const auto same_line = [](const PastOperation& past, const Posted& call) {
        return line_of(past) == call.line();
    };
    // Splits at different lines make different groups.
    const auto alike = [](const PastOperation& past, const Posted& call) {
        return past.verb == call.operation.verb && past.count == call.operation.count &&
               (past.verb != Verb::split || line_of(past) == call.line());
    };
    for (std::size_t i = 0; i < chain.links.size(); ++i) {
        const Activity& one = chain.links[i];
        const Activity& next = chain.links[(i + 1) % chain.links.size()];
        if (has_made(engine, one.rank, *next.posted, same_line) &&
            !has_made(engine, next.rank, *one.posted, alike))
            return true;
    }
    return false;
}

std::string fault_of_circle(const Engine& engine, const Chain& chain) {
    const auto messages =
        std::count_if(chain.links.begin(), chain.links.end(), [](const Activity& link) {
            return is_point_to_point(link.posted->operation.verb);
        });
    if (messages == 0) return is_divergence(engine, chain) ? "F13" : "F12";
    if (messages < std::ssize(chain.links)) return "F13";
    return is_pipeline(engine, chain) ? "F14" : "F11";
}

constexpr const char* kMakesGroup =
    "All ranks of a communicator must make a new group together, even ranks that are not "
    "in it, and all at the same place among their calls. Make the group before the "
    "condition or the loop. (A mesh makes a plane at the first call of Mesh::plane.)";

/// Returns the likely cause if a rank of the circle makes a group, or if all wait in
/// sends, or all in recvs; else null.
const char* cause_of_circle(const Chain& chain, const std::string& fault) {
    if (std::ranges::any_of(chain.links, [](const Activity& link) {
            return link.posted->operation.verb == Verb::split;
        }))
        return kMakesGroup;

    const auto all = [&](Verb verb) {
        return std::all_of(
            chain.links.begin(), chain.links.end(),
            [&](const Activity& link) { return link.posted->operation.verb == verb; });
    };
    const bool pipeline = fault == "F14";
    if (all(Verb::send))
        return pipeline
                   ? "Each of these stages sends, and none receives: put the send of a "
                     "forward and the recv of a backward into one group(), give all "
                     "stages one order of messages, or run all forwards before the "
                     "first backward."
                   : "Each of these ranks sends first, and a send waits until its "
                     "recv is there: put a rank's send and recv into one group(), or "
                     "let some of them receive first.";
    if (all(Verb::recv))
        return pipeline
                   ? "Each of these stages waits for something that another stage has "
                     "not sent yet. Before its first backward, a stage must run one "
                     "forward more than there are stages behind it. Check the number of "
                     "warm-up forwards of each of these stages."
                   : "Each of these ranks receives first, and none has sent: let some "
                     "of them send first, or put a rank's send and recv into one "
                     "group().";
    return nullptr;
}

std::string circle_sentence(const Engine& engine, const Chain& chain) {
    constexpr std::size_t kTold = 3;
    std::string sentence = "no rank can continue: ";
    const std::size_t told = std::min(chain.links.size(), kTold);
    const char* waits = "";
    for (std::size_t i = 0; i < told; ++i) {
        const std::vector<int> ranks = ranks_of(together_with(engine, chain.links[i]));
        sentence += waits + wait_text(ranks, chain.links[i]);
        if (i == 0)
            waits = ranks.size() == 1 ? " waits for " : " wait for ";
        else
            waits = ranks.size() == 1 ? ", which waits for " : ", which wait for ";
    }
    if (told < chain.links.size())
        return sentence +
               fmt::format(", and so on through {} ranks; the last one waits for rank {}",
                           chain.links.size(), chain.links.front().rank);
    return sentence + waits + fmt::format("rank {}", chain.links.front().rank);
}

Diagnosis start_diagnosis(const Engine& engine, const std::string& fault,
                          const Posted& posted) {
    Diagnosis diagnosis = diagnosis_on(*posted.launch->team, fault);
    if (!is_point_to_point(posted.operation.verb))
        diagnosis.sequence = static_cast<std::int64_t>(posted.sequence);
    for (const auto& state : engine.ranks())
        diagnosis.time = std::max(diagnosis.time, state->virtual_device.now());
    return diagnosis;
}

Diagnosis explain_circle(const Engine& engine, const Chain& chain) {
    Diagnosis diagnosis = start_diagnosis(engine, fault_of_circle(engine, chain),
                                          *chain.links.front().posted);
    diagnosis.sentence = circle_sentence(engine, chain);
    if (const char* const cause = cause_of_circle(chain, diagnosis.fault))
        diagnosis.cause = cause;
    std::vector<Activity> involved;
    for (const Activity& link : chain.links)
        for (const Activity& activity : together_with(engine, link))
            if (std::ranges::none_of(involved, [&](const Activity& known) {
                    return known.rank == activity.rank;
                }))
                involved.push_back(activity);
    diagnosis.parties = parties_of(engine, involved);
    diagnosis.others = others_of(engine, ranks_of(involved));
    for (const Activity& link : chain.links)
        if (tell_first_out_of_step(engine, *link.posted->launch->team, diagnosis)) break;
    return diagnosis;
}

constexpr const char* kStandsStill =
    "The rank that the others wait for computes, loops or waits for something else. Look "
    "at what its program does after its last operation.";

/// Returns the ranks that wait in the same call as `waiting`, and the ended ranks that
/// they wait for.
std::vector<Activity> involved_in(const Engine& engine, const Activity& waiting) {
    const Posted& posted = *waiting.posted;
    const bool message = is_point_to_point(posted.operation.verb);
    std::vector<Activity> involved;
    for (int rank : posted.launch->team->ranks) {
        const Activity activity =
            rank == waiting.rank ? waiting : activity_of(engine, rank);
        const bool same_call = !activity.ended() && !message &&
                               activity.posted->launch->team == posted.launch->team &&
                               activity.posted->sequence == posted.sequence &&
                               !is_point_to_point(activity.posted->operation.verb);
        const bool absent =
            activity.ended() &&
            std::count(waiting.awaits.begin(), waiting.awaits.end(), rank) > 0;
        if (same_call || absent || rank == waiting.rank) involved.push_back(activity);
    }
    return involved;
}

Diagnosis explain_end(const Engine& engine, const Chain& chain) {
    const Activity& waiting = chain.links[chain.links.size() - 2];
    const Activity& gone = chain.links.back();
    const Posted& posted = *waiting.posted;
    const bool message = is_point_to_point(posted.operation.verb);
    const bool sends = posted.operation.verb == Verb::send;
    const std::vector<Activity> involved = involved_in(engine, waiting);
    std::vector<int> waiters;
    std::vector<int> ended;
    for (const Activity& activity : involved)
        (activity.ended() ? ended : waiters).push_back(activity.rank);

    Diagnosis diagnosis = start_diagnosis(engine, message ? "F10" : "F07", posted);
    const std::vector<std::string> last = history_of(engine, gone.rank, nullptr);
    const std::string have = ended.size() == 1 ? "has" : "have";
    const bool still = engine.stands_still(gone.rank);
    if (still)
        diagnosis.cause = kStandsStill;
    else if (posted.operation.verb == Verb::split)
        diagnosis.cause = kMakesGroup;
    const std::string missing =
        message && !posted.operation.all_to_all_v
            ? fmt::format("{} rank {}", sends ? "a recv from" : "a send to", waiting.rank)
            : "that call";
    diagnosis.sentence = fmt::format(
        "{} {} in {} at {} for {}, which {} {}; {}", ranks_text(waiters),
        waiters.size() == 1 ? "waits" : "wait", text_of(posted), where(posted),
        ranks_text(ended), have + (still ? " not reached" : " ended without"), missing,
        last.empty() ? fmt::format("rank {} launched no operation", gone.rank)
                     : fmt::format("the last operation of rank {} was {}", gone.rank,
                                   last.back()));
    diagnosis.parties = parties_of(engine, involved);
    diagnosis.others = others_of(engine, ranks_of(involved));
    tell_first_out_of_step(engine, *posted.launch->team, diagnosis);
    return diagnosis;
}

/// Explains an operation that was launched, never waited for, and never met its partners.
Diagnosis explain_leftover(const Engine& engine, const Posted& posted) {
    const bool message = is_point_to_point(posted.operation.verb);
    const Launch& launch = *posted.launch;
    Diagnosis diagnosis = start_diagnosis(engine, message ? "F10" : "F07", posted);
    diagnosis.sentence =
        message
            ? fmt::format(
                  "the run has ended, but rank {}'s {} at {} never met its {} on rank {}",
                  launch.rank, text_of(posted), posted.operation.at.text(),
                  posted.operation.verb == Verb::send ? "recv" : "send",
                  launch.team->ranks[posted.operation.peer])
            : fmt::format(
                  "the run has ended, but rank {}'s {} at {} was not called by every "
                  "rank of {}",
                  launch.rank, text_of(posted), posted.operation.at.text(),
                  launch.team->name);
    diagnosis.parties.push_back({{launch.rank},
                                 text_of(posted),
                                 "",
                                 posted.operation.at,
                                 history_of(engine, launch.rank, &posted)});
    diagnosis.others = others_of(engine, {launch.rank});
    return diagnosis;
}

const Posted* find_leftover(const Engine& engine) {
    for (const auto& team : engine.teams())
        for (const Member& member : team->members)
            if (member.first != nullptr)
                for (const Posted& posted : member.first->posted)
                    if (!posted.done) return &posted;
    return nullptr;
}

}  // namespace

std::optional<Diagnosis> explain_stop(const Engine& engine) {
    for (int rank = 0; rank < static_cast<int>(engine.ranks().size()); ++rank) {
        if (engine.ranks()[rank]->ended) continue;
        const Chain chain = follow(engine, rank);
        return chain.circle ? explain_circle(engine, chain) : explain_end(engine, chain);
    }
    if (const Posted* leftover = find_leftover(engine))
        return explain_leftover(engine, *leftover);
    return std::nullopt;
}

namespace {

/// If at most this many ranks wait for messages at one line, each rank is listed.
constexpr std::size_t kMostAlone = 8;

/// Returns the ranks that passed other arguments to the same collective or message.
std::vector<int> opposed_to(const Posted& posted) {
    std::vector<int> ranks;
    if (is_point_to_point(posted.operation.verb)) {
        if (posted.partner != nullptr) ranks.push_back(posted.partner->launch->rank);
        return ranks;
    }
    for (const Posted* other : meeting_of(posted).arrived)
        if (other != nullptr && !same_signature(other->operation, posted.operation))
            ranks.push_back(other->launch->rank);
    return ranks;
}

using Key = std::tuple<bool, int, std::uint64_t, std::string, std::string>;

/// Returns the same key for waits that are listed as one. Keys of messages ignore peers.
Key key_of(const Posted& posted) {
    CommOperation operation;
    operation.verb = posted.operation.verb;
    operation.reduction = posted.operation.reduction;
    operation.dtype = posted.operation.dtype;
    operation.count = posted.operation.count;
    const bool message = is_point_to_point(operation.verb);
    if (!message) operation.peer = posted.operation.peer;
    return {message, posted.launch->team->id, message ? 0 : posted.sequence,
            text_of(operation), posted.operation.at.text()};
}

Diagnosis::Wait wait_of(const Activity& activity) {
    std::vector<int> to = activity.awaits;
    if (to.empty()) to = opposed_to(*activity.posted);
    return {{activity.rank},
            std::move(to),
            text_of(*activity.posted),
            activity.posted->operation.at};
}

/// Adds waits that have the same key: as one, unless they are a few waits for messages.
void add_waits(std::vector<Diagnosis::Wait>& waits,
               const std::vector<Activity>& activities) {
    const bool message = is_point_to_point(activities.front().posted->operation.verb);
    if (message && activities.size() <= kMostAlone) {
        for (const Activity& activity : activities)
            waits.push_back(wait_of(activity));
        return;
    }
    Diagnosis::Wait wait = wait_of(activities.front());
    for (std::size_t i = 1; i < activities.size(); ++i) {
        wait.from.push_back(activities[i].rank);
        if (!message) continue;
        const std::vector<int> more = wait_of(activities[i]).to;
        wait.to.insert(wait.to.end(), more.begin(), more.end());
    }
    if (message)
        wait.operation +=
            fmt::format(" (rank {}'s; the others have other peers)", wait.from.front());
    std::sort(wait.to.begin(), wait.to.end());
    wait.to.erase(std::unique(wait.to.begin(), wait.to.end()), wait.to.end());
    waits.push_back(std::move(wait));
}

}  // namespace

std::vector<Diagnosis::Wait> waits_of(const Engine& engine) {
    std::vector<Activity> all;
    std::vector<Diagnosis::Wait> waits;
    for (std::size_t rank = 0; rank < engine.ranks().size(); ++rank) {
        if (engine.ranks()[rank]->ended) continue;
        Activity activity = activity_of(engine, static_cast<int>(rank));
        if (activity.ended()) continue;
        all.push_back(activity);
        waits.push_back(wait_of(activity));
    }
    // Lists a small circle rank by rank, without the waits that lead to it.
    std::vector<std::size_t> circle = circle_of(waits);
    if (circle.size() > kMostAlone) circle.clear();
    std::map<Key, std::vector<Activity>> grouped;
    std::vector<Diagnosis::Wait> told;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const bool alone = is_point_to_point(all[i].posted->operation.verb) &&
                           std::ranges::find(circle, i) != circle.end();
        if (alone)
            told.push_back(waits[i]);
        else
            grouped[key_of(*all[i].posted)].push_back(all[i]);
    }
    waits = std::move(told);
    for (const auto& [key, activities] : grouped)
        add_waits(waits, activities);
    std::erase_if(waits, [](const Diagnosis::Wait& wait) { return wait.to.empty(); });
    std::sort(waits.begin(), waits.end(), [](const auto& a, const auto& b) {
        return a.from.front() < b.from.front();
    });
    return waits;
}

}  // namespace lockstep::sim
