// What the engine does when no rank can run: it completes communications, in virtual
// time.

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/check/group_making.hpp"
#include "sim/check/unwaited.hpp"
#include "sim/collective.hpp"
#include "sim/engine.hpp"
#include "sim/traffic.hpp"
#include "src/cost/collectives.hpp"

namespace lockstep::sim {

namespace {

TraceEvent span_of(const Batch& batch, int micro_batch) {
    std::string name;
    std::int64_t bytes = 0;
    for (const Posted& posted : batch.posted) {
        add_verb(name, posted.operation);
        bytes += posted.operation.bytes();
    }
    return {batch.rank, batch.team->name, name,  "communication", batch.started,
            batch.end,  micro_batch,      bytes, batch.at};
}

/// When a collective starts for which all are there.
Picoseconds start_of(const Meeting& meeting) {
    Picoseconds start = 0;
    for (const Posted* posted : meeting.arrived)
        start = std::max(start, posted->batch->turn);
    return start;
}

/// Teams whose first collectives can end, by when these start: where two of them use one
/// buffer, the order shows.
void in_virtual_order(std::vector<Team*>& teams) {
    std::vector<std::tuple<Picoseconds, int, Team*>> starts;
    for (Team* team : teams)
        starts.emplace_back(start_of(team->meetings.front()), team->id, team);
    std::sort(starts.begin(), starts.end());
    for (std::size_t i = 0; i < teams.size(); ++i)
        teams[i] = std::get<Team*>(starts[i]);
}

}  // namespace

bool Engine::on_quiet() {
    try {
        if (move_on()) return true;
    } catch (...) {
        failure_ = std::current_exception();
    }
    complete_diagnosis();
    return false;
}

bool Engine::move_on() {
    woken_ = 0;
    while (true) {
        if (note_failure()) return false;
        expectations_.compare();
        check_.tell(&Watcher::quiet);
        bool moved = end_meetings();
        moved = pass_messages() || moved;
        if (woken_ > 0 && mistakes_.empty()) return true;
        if (moved) continue;
        // No rank can run and no pair is new, so none can add a message of an earlier
        // time.
        const auto hand_over = [&](const Message& message, Network::Span span) {
            deliver(message, span);
        };
        if (!network_.advance(hand_over)) break;
        if (woken_ > 0 && mistakes_.empty()) return true;
    }
    note_stop();
    if (!failure_) note_kept_communicators();
    if (!failure_) expectations_.run_ended();
    if (!failure_) check_.tell(&Watcher::run_ended);
    return false;
}

/// Communications that never end, up to the stop.
void Engine::trace_open(Picoseconds stop) {
    if (!trace_.on()) return;
    for (const auto& team : teams_) {
        for (const Member& member : team->members) {
            if (member.first == nullptr || member.first->posted.empty()) continue;
            TraceEvent event = span_of(*member.first, -1);
            event.name += " (never ended)";
            event.start = member.first->opened;
            event.end = std::max(stop, event.start);
            trace_.event(std::move(event));
        }
    }
}

bool Engine::end_meetings() {
    std::vector<Team*> teams = std::exchange(complete_, {});
    if (teams.size() > 1) in_virtual_order(teams);
    for (Team* team : teams)
        end_meeting(*team);
    return !teams.empty();
}

void Engine::end_meeting(Team& team) {
    if (team.meetings.front().first->operation.verb == Verb::split)
        require_same_groups(*this, team, team.meetings.front());
    const Meeting meeting = std::move(team.meetings.front());
    team.meetings.pop_front();
    ++team.first_meeting;

    const CommOperation operation = meeting.first->operation;
    const CollectiveCall call{operation.verb, operation.count, bytes_of(operation.dtype),
                              team.size(), operation.peer < 0 ? 0 : operation.peer};
    const Picoseconds start = start_of(meeting);
    const Network::Span span{start,
                             start + collective_time(call, options_.spec, team.ranks)};

    if (operation.verb == Verb::split) split_team(team, meeting);
    check_.tell(&Watcher::collective_begins, team, meeting);
    if (options_.numbers) compute(meeting.arrived);
    check_.tell(&Watcher::collective_ended, team, meeting);
    count_collective(team, call, options_.spec);
    for (Posted* posted : meeting.arrived)
        finish(*posted, span);
    list_if_complete(team);
}

void Engine::split_team(const Team& team, const Meeting& meeting) {
    std::map<int, std::vector<std::pair<int, int>>> colours;  // to (key, member)
    for (const Posted* posted : meeting.arrived) {
        const SplitRequest& request = rank(posted->batch->rank).split.asked;
        if (request.color != Communicator::kNoColor)
            colours[request.color].emplace_back(request.key, posted->batch->member);
    }
    for (auto& [colour, members] : colours) {
        std::sort(members.begin(), members.end());
        std::vector<int> ranks;
        for (const auto& [key, member] : members)
            ranks.push_back(team.ranks[member]);
        Team& made = make_team(rank(ranks.front()).split.asked.name, ranks);
        for (int member = 0; member < made.size(); ++member) {
            RankState::Split& split = rank(ranks[member]).split;
            split.team = &made;
            split.member = member;
        }
    }
}

/// What a message touches was last used when its ranks ran: a thousand ranks later it has
/// left the caches.
void Engine::prefetch(const Message& message) const {
    for (const Posted* side : {message.send, message.recv}) {
        __builtin_prefetch(side);
        __builtin_prefetch(side->batch);
    }
    __builtin_prefetch(ranks_[message.source].get());
}

bool Engine::pass_messages() {
    constexpr std::size_t kAhead = 4;
    const std::vector<Message> messages = std::exchange(paired_, {});
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const Message& message = messages[i];
        if (i + kAhead < messages.size()) prefetch(messages[i + kAhead]);
        if (message.send->operation.is_no_message(message.send->batch->member))
            deliver(message, {message.ready, message.ready});
        else if (is_alone(message))
            deliver(message, network_.pass(message));
        else
            network_.enqueue(message);
    }
    return !messages.empty();
}

/// Whether nothing can come before the message at its ports: they are its ranks' own,
/// both ranks are blocked on it (or have ended), and no other send or recv of theirs is
/// under way. Then it need not wait its turn in virtual time.
bool Engine::is_alone(const Message& message) const {
    const auto blocked_on = [&](const Batch& batch) {
        const RankState& state = *ranks_[batch.rank];
        return (state.waiting == &batch || state.ended) && state.message_batches == 1;
    };
    return message.send->batch->undone_sends == 1 &&
           message.recv->batch->undone_recvs == 1 && blocked_on(*message.send->batch) &&
           blocked_on(*message.recv->batch) &&
           !network_.is_shared(message.source, message.destination);
}

void Engine::deliver(const Message& message, Network::Span span) {
    check_.tell(&Watcher::message_begins, *message.send, *message.recv);
    const Tensor& output = message.recv->operation.output;
    if (options_.numbers && output.elements() > 0)
        output.device()->transfer(output.flat(), message.send->operation.input.flat());
    check_.tell(&Watcher::message_ended, *message.send, *message.recv);
    if (!message.send->operation.is_no_message(message.send->batch->member))
        count_message(message, options_.spec);
    trace_.flow({message.source, message.destination, message.send->batch->team->name,
                 span.start, span.end, message.bytes});
    finish(*message.send, span);
    finish(*message.recv, span);
}

void Engine::finish(Posted& posted, Network::Span span) {
    Batch& batch = *posted.batch;
    posted.done = true;
    const bool first = batch.undone == static_cast<int>(batch.posted.size());
    batch.started = first ? span.start : std::min(batch.started, span.start);
    batch.end = std::max(batch.end, span.end);
    if (!is_point_to_point(posted.operation.verb)) batch.turn = span.end;
    batch.undone_sends -= posted.operation.verb == Verb::send;
    batch.undone_recvs -= posted.operation.verb == Verb::recv;
    if (--batch.undone == 0) close(batch);
}

void Engine::close(Batch& batch) {
    RankState& state = rank(batch.rank);
    Member& side = batch.team->members[batch.member];
    batch.state = Batch::State::closed;
    side.free_at = batch.end;
    state.clock.communicated(batch.started, batch.end);
    if (trace_.on() && !batch.posted.empty())
        trace_.event(span_of(batch, state.clock.micro_batch()));
    if (batch.counted) --state.message_batches;
    check_.tell(&Watcher::closing, batch);
    if (state.waiting == &batch) {
        state.waiting = nullptr;
        scheduler_.make_ready(batch.rank);
        ++woken_;
    } else {
        note_unwaited(side, batch);
    }
    batch.posted.clear();
    side.first = batch.next;
    if (side.first == nullptr) side.last = nullptr;
    intrusive_ptr_release(&batch);
    if (side.first != nullptr) open(*side.first);
}

}  // namespace lockstep::sim
