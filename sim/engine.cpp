#include "sim/engine.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "sim/comm.hpp"
#include "sim/device.hpp"
#include "src/core/require.hpp"
#include "src/cost/collectives.hpp"
#include "src/cost/virtual_time.hpp"
#include "src/os/memory.hpp"
#include "src/run/naming_rank.hpp"

namespace lockstep::sim {

namespace {

TraceEvent span_of(const Launch& launch, int micro_batch) {
    std::string name;
    std::int64_t bytes = 0;
    for (const Posted& posted : launch.posted) {
        add_verb(name, posted.operation);
        bytes += posted.operation.bytes();
    }
    const char* const kind = launch.is_copy() ? "copy" : "communication";
    return {launch.rank,  launch.team->name, name,  kind,      launch.started,
            launch.end,   micro_batch,       bytes, launch.at, {},
            launch.issued};
}

/// Returns the start of a collective whose members have all arrived.
Picoseconds start_of(const Meeting& meeting) {
    Picoseconds start = 0;
    for (const Posted* posted : meeting.arrived)
        start = std::max(start, posted->launch->turn);
    return start;
}

/// Returns how much latency the collective's group has already paid on all ranks.
Picoseconds latency_paid(const Meeting& meeting) {
    Picoseconds paid = meeting.first->launch->latency;
    for (const Posted* posted : meeting.arrived)
        paid = std::min(paid, posted->launch->latency);
    return paid;
}

/// Returns the launch that ended first; null if none is done.
Launch* first_to_end(const std::vector<Launch*>& launches) {
    Launch* first = nullptr;
    for (Launch* launch : launches)
        if (launch->state == Launch::State::closed &&
            (first == nullptr || launch->end < first->end))
            first = launch;
    return first;
}

/// Sorts teams by the start of their first collectives. All these collectives can end; if
/// two of them use one buffer, their order matters.
void in_virtual_order(std::vector<Team*>& teams) {
    std::vector<std::tuple<Picoseconds, int, Team*>> starts;
    starts.reserve(teams.size());
    for (Team* team : teams)
        starts.emplace_back(start_of(team->meetings.front()), team->id, team);
    std::sort(starts.begin(), starts.end());
    for (std::size_t i = 0; i < teams.size(); ++i)
        teams[i] = std::get<Team*>(starts[i]);
}

ClusterOptions with_check(ClusterOptions options) {
    if (!options.check) {
        Checks asked = checks_asked();
        options.check = asked.level;
        options.unchecked.merge(asked.without);
    }
    return options;
}

}  // namespace

Engine::Engine(ClusterOptions options)
    : options_(with_check(std::move(options))),
      scheduler_(options_.executor, options_.workers, options_.schedule_seed),
      trace_(options_.trace),
      watchers_(*this),
      network_(options_.spec, options_.ranks),
      launches_(*this),
      host_memory_(options_.ranks,
                   [this] {
                       for (CpuDevice* device : cpu_devices_)
                           device->drop_kept_memory();
                       return os::available_memory();
                   }),
      handle_(std::make_shared<Engine*>(this)) {
    std::vector<int> all(static_cast<std::size_t>(options_.ranks));
    std::iota(all.begin(), all.end(), 0);
    Team& world = make_team("world", std::move(all));
    for (int i = 0; i < options_.ranks; ++i) {
        ranks_.push_back(std::make_unique<RankState>(*this, i, options_, scheduler_,
                                                     trace_, watchers_));
        RankState& state = *ranks_.back();
        const auto make_device = [&](DeviceMonitor& monitor) {
            auto device = std::make_unique<CpuDevice>(i, monitor);
            if (options_.check == CheckLevel::full) device->spoil_new_memory();
            device->count_kept_memory_in(host_memory_.kept());
            cpu_devices_.push_back(device.get());
            return device;
        };
        state.host = make_device(state.virtual_host);
        state.device = options_.device_factory
                           ? options_.device_factory(i, state.virtual_device)
                           : make_device(state.virtual_device);
        state.host->set_host(*state.host);
        state.device->set_host(*state.host);
        state.world =
            std::make_unique<Comm>(handle_, *state.device, world, i, SourceLine());
    }
    checker_ = make_checker(*this, watchers_);
}

Engine::~Engine() {
    *handle_ = nullptr;
}

Team& Engine::make_team(const std::string& name, std::vector<int> ranks) {
    auto team = std::make_unique<Team>();
    team->id = static_cast<int>(teams_.size());
    team->name = name;
    team->members.resize(ranks.size());
    team->lifetimes.resize(ranks.size());
    team->counts.resize(ranks.size());
    team->sent.resize(ranks.size());
    team->ranks = std::move(ranks);
    teams_.push_back(std::move(team));
    return *teams_.back();
}

RunReport Engine::run(const Program& program) {
    const auto body = [&](int index) { run_rank(index, program); };
    const auto quiet = [&] { return on_quiet(); };
    scheduler_.run(options_.ranks, body, quiet);
    if (failure_) stop();
    return report();
}

/// Throws the failure. A FaultError gets the report of the run.
void Engine::stop() {
    try {
        if (failed_rank_ >= 0) rethrow_naming_rank(failed_rank_, failure_);
        std::rethrow_exception(failure_);
    } catch (FaultError& fault) {
        fault.set_report(std::make_shared<RunReport>(report()));
        throw;
    }
}

void Engine::run_rank(int index, const Program& program) {
    RankState& state = rank(index);
    try {
        Rank self(*state.device, *state.world, state.report);
        program(self);
        state.world->require_groups_started();
        watchers_.tell_of(index, &Watcher::ended, index);
    } catch (const Cancelled&) {
        throw;
    } catch (...) {
        note_mistake(index, std::current_exception());
    }
    state.ended = true;
}

void Watchers::note_mistake(int rank) const {
    engine_.note_mistake(rank, std::current_exception());
}

void Engine::note_mistake(int index, std::exception_ptr what) {
    RankState& state = rank(index);
    if (state.failure) return;
    state.failure = std::move(what);
    mistakes_.push_back({index, nullptr});
}

// Calls of ranks.

Launch& Engine::post(Team& team, int member, std::span<CommOperation> operations,
                     SourceLine at) {
    Launch& launch = *launches_.take();
    Member& side = team.members[member];
    launch.team = &team;
    launch.member = member;
    launch.rank = team.ranks[member];
    launch.at = at;
    launch.called_from =
        open_call != nullptr && open_call->depth > 0 ? open_call->at : SourceLine();
    const VirtualDevice& device = rank(launch.rank).virtual_device;
    launch.phase = device.phase();
    launch.micro_batch = device.micro_batch();
    launch.step = device.steps();
    launch.state = Launch::State::queued;
    launch.number = ++side.launches;
    launch.rank_number = rank(launch.rank).launches++;
    launch.next = nullptr;
    launch.undone = static_cast<int>(operations.size());
    launch.undone_sends = launch.undone_recvs = 0;
    launch.posted.reserve(operations.size());
    for (CommOperation& operation : operations) {
        const bool message = is_point_to_point(operation.verb);
        launch.undone_sends += operation.verb == Verb::send;
        launch.undone_recvs += operation.verb == Verb::recv;
        launch.posted.emplace_back(launch, message ? side.messages++ : side.collectives++,
                                   std::move(operation));
        note_past(launch.posted.back());
    }
    launch.counted = launch.has_messages();
    if (launch.counted) ++rank(launch.rank).message_launches;
    launch.index_by_peer();
    return launch;
}

void Engine::enqueue(Launch& launch) {
    launch.issued = rank(launch.rank).virtual_device.now();
    watchers_.tell_of(launch.rank, &Watcher::launched, launch);
    intrusive_ptr_add_ref(&launch);  // the queue's reference, until it closes
    Member& side = launch.team->members[launch.member];
    if (side.first == nullptr) {
        side.first = side.last = &launch;
        open(launch);
    } else {
        side.last->next = &launch;
        side.last = &launch;
    }
}

/// Returns a queue of copies: a team of one rank, made at its first copy.
Team& Engine::copy_queue(int index, CopyDirection direction) {
    const bool to_host = direction == CopyDirection::to_host;
    RankState& state = rank(index);
    Team*& queue = to_host ? state.copies_to_host : state.copies_to_device;
    if (queue == nullptr) {
        queue = &make_team(to_host ? "copy to host" : "copy to device", {index});
        queue->copies = true;
    }
    return *queue;
}

Work Engine::start_copy(int index, CopyDirection direction, const Tensor& destination,
                        const Tensor& source, SourceLine at) {
    RankState& state = rank(index);
    const bool to_host = direction == CopyDirection::to_host;
    const bool pinned = (to_host ? destination : source).storage()->pinned;
    const std::int64_t bytes = source.bytes();
    (to_host ? state.report.host.bytes_to_host : state.report.host.bytes_to_device) +=
        bytes;
    if (!pinned && !to_host) state.virtual_host.stage(bytes, at);
    CommOperation copy;
    copy.verb = Verb::copy;
    copy.dtype = source.dtype();
    copy.count = source.elements();
    copy.at = at;
    copy.output = destination;
    copy.input = source;
    Launch& launch = post(copy_queue(index, direction), 0, {&copy, 1}, at);
    Work work(&launch);
    enqueue(launch);
    if (pinned) return work;
    wait(launch, at);
    if (to_host) state.virtual_host.stage(bytes, at);
    return work;
}

void Engine::note_past(const Posted& posted) {
    RankState& state = rank(posted.launch->rank);
    const CommOperation& operation = posted.operation;
    // An all_to_all_v has many parts; the history counts it as one operation.
    if (operation.all_to_all_v && &posted != posted.launch->posted.data()) return;
    state.history[state.launched++ % RankState::kHistory] = past_of(posted);
    if (!is_point_to_point(operation.verb)) state.lines.note(posted.line());
}

void Engine::wait(Launch& launch, SourceLine at) {
    require(scheduler_.current() == launch.rank, at, "rank {} waited for work of rank {}",
            scheduler_.current(), launch.rank);
    RankState& state = rank(launch.rank);
    if (launch.state != Launch::State::closed) {
        state.waiting = &launch;
        scheduler_.suspend();
    }
    // For a copy the program waits; for a communication the device's queue waits.
    VirtualDevice& waits = launch.is_copy() ? state.virtual_host : state.virtual_device;
    state.virtual_device.follow_host(at);
    const Picoseconds start = state.virtual_device.now();
    waits.wait_until(launch.end);
    if (trace_.is_on() && !launch.is_copy() && launch.end > start)
        trace_wait(launch, start, at);
    Member& side = launch.team->members[launch.member];
    side.note_waited(launch.number);
    watchers_.tell_of(launch.rank, &Watcher::waited, launch, at);
}

std::size_t Engine::wait_any(std::vector<Launch*> launches, SourceLine at) {
    const int index = scheduler_.current();
    for (const Launch* launch : launches)
        require(launch->engine == this && launch->rank == index, at,
                "rank {} called wait_any with a work of rank {}", index, launch->rank);
    arrivals_decide_ = true;
    RankState& state = rank(index);
    state.any_of = launches;
    wait_for_any_.push_back(index);
    scheduler_.suspend();
    const auto ends_first = std::ranges::find(launches, first_to_end(state.any_of));
    state.any_of.clear();
    wait(**ends_first, at);
    state.virtual_host.wait_until((*ends_first)->end);
    return static_cast<std::size_t>(ends_first - launches.begin());
}

/// Adds an event to the trace: the rank's compute queue waited for the launch.
void Engine::trace_wait(const Launch& launch, Picoseconds start, SourceLine at) {
    // An empty group has no event; it can still end late, behind earlier launches.
    TraceEvent event = launch.traced < 0 ? span_of(launch, -1) : trace_.at(launch.traced);
    event.name = "wait for " + (event.name.empty() ? "an empty group" : event.name);
    event.communicator = std::exchange(event.queue, "compute");
    event.kind = "wait";
    event.start = start;
    event.micro_batch = rank(launch.rank).virtual_device.micro_batch();
    event.at = at;
    trace_.event(std::move(event));
}

void Engine::communicator_went(Team& team, int member) {
    const Member& side = team.members[member];
    team.lifetimes[member].went = true;
    const int index = team.ranks[member];
    if (side.waited == side.launches || current() != index) return;
    if (std::optional<Diagnosis> diagnosis = checker_->explain_open_works(team, member))
        note_mistake(index, std::make_exception_ptr(FaultError(std::move(*diagnosis))));
}

void Engine::expect_replicated(const Team& team, int member, const Tensor& tensor,
                               const std::string& name, SourceLine at) {
    expect(team, member, tensor, {false, {}, {}, {}, name, at, {}});
}

void Engine::declare_same(const Team& team, int member, const Tensor& tensor,
                          const std::string& name, SourceLine at) {
    expect(team, member, tensor,
           {true, {}, {}, {}, name, at, tensor.storage()->allocated_at});
}

void Engine::declare_same(const Team& team, int member, const HostTensor& values,
                          const std::string& name, SourceLine at) {
    const Expectation same{true, values.shape(), values.dtype(), values, name, at, {}};
    checker_->expected(team, member, same, rank(team.ranks[member]).virtual_device.now());
}

/// `of_it` is what the member states about the tensor, without its shape and dtype.
void Engine::expect(const Team& team, int member, const Tensor& tensor,
                    Expectation of_it) {
    of_it.shape = tensor.shape();
    of_it.dtype = tensor.dtype();
    Device& device = *tensor.device();
    if (device.has_numbers()) of_it.values = device.peek(tensor, of_it.at);
    checker_->expected(team, member, of_it,
                       rank(team.ranks[member]).virtual_device.now());
}

void Engine::declare_replicas(Team& team, int member, const Tensor& tensor,
                              const std::string& name, SourceLine at) {
    const int index = team.ranks[member];
    team.declared.insert(name);
    watchers_.tell_of(index, &Watcher::declared, team, member, tensor, name, at);
}

// Finding partners.

void Engine::open(Launch& launch) {
    const Member& side = launch.team->members[launch.member];
    launch.state = Launch::State::open;
    launch.opened = std::max(launch.issued, side.free_at);
    launch.started = launch.end = launch.turn = launch.opened;
    launch.latency = 0;
    if (launch.undone == 0) return close(launch);
    for (Posted& posted : launch.posted) {
        if (!is_point_to_point(posted.operation.verb))
            arrive(posted);
        else if (posted.partner == nullptr)
            pair(posted);
    }
}

void Engine::arrive(Posted& posted) {
    Team& team = *posted.launch->team;
    const auto place = static_cast<std::size_t>(posted.sequence - team.first_meeting);
    while (team.meetings.size() <= place) {
        team.meetings.emplace_back();
        team.meetings.back().arrived.resize(team.members.size());
    }
    Meeting& meeting = team.meetings[place];
    meeting.arrived[posted.launch->member] = &posted;
    if (meeting.first == nullptr) meeting.first = &posted;
    ++meeting.present;
    if (!(posted.line() == meeting.first->line())) meeting.unlike = true;
    if (!can_meet(team, meeting.first->operation, posted.operation) && !meeting.differs) {
        meeting.differs = true;
        mistakes_.push_back({posted.launch->rank, &posted});
    }
    list_if_complete(team);
}

/// A team's collectives end in order. Lists the first one if all members have arrived.
void Engine::list_if_complete(Team& team) {
    if (team.meetings.empty()) return;
    Meeting& meeting = team.meetings.front();
    if (meeting.present < team.size() || meeting.differs || meeting.listed) return;
    meeting.listed = true;
    complete_.push_back(&team);
}

void Engine::pair(Posted& posted) {
    const Team& team = *posted.launch->team;
    const CommOperation& mine = posted.operation;
    Launch* const other = team.members[mine.peer].first;
    if (other == nullptr || other->state != Launch::State::open) return;
    const Verb wanted = mine.verb == Verb::send ? Verb::recv : Verb::send;
    Posted* const partner = other->unpaired(wanted, posted.launch->member);
    if (partner == nullptr) return;
    posted.partner = partner;
    partner->partner = &posted;
    if (mine.count != partner->operation.count ||
        mine.dtype != partner->operation.dtype) {
        mistakes_.push_back({posted.launch->rank, &posted});
        return;
    }
    Posted& send = mine.verb == Verb::send ? posted : *partner;
    Posted& recv = *send.partner;
    paired_.push_back({&send, &recv, send.launch->rank, recv.launch->rank,
                       mine.count * bytes_of(mine.dtype),
                       std::max(posted.launch->opened, other->opened),
                       static_cast<std::uint64_t>(&send - send.launch->posted.data()),
                       send.launch->rank_number});
}

// When no rank can run, communications advance in virtual time.

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
        checker_->quiet();
        watchers_.tell(&Watcher::quiet);
        bool moved = end_meetings();
        moved = pass_messages() || moved;
        if (woken_ > 0 && mistakes_.empty()) return true;
        if (moved) continue;
        if (mistakes_.empty() && end_wait_for_any()) return true;
        // No rank can run and no pair is new, so no rank can add an earlier message.
        const auto hand_over = [&](const Message& message, Network::Span span) {
            deliver(message, span);
        };
        if (!network_.advance(hand_over)) break;
        if (woken_ > 0 && mistakes_.empty()) return true;
    }
    // None of the launches in any_of ends; the diagnosis names the first launch.
    for (const int index : wait_for_any_)
        rank(index).waiting = rank(index).any_of.front();
    if (std::optional<Diagnosis> stop = checker_->explain_stop()) {
        note_diagnosis(std::move(*stop));
        return false;
    }
    checker_->run_ended();
    watchers_.tell(&Watcher::run_ended);
    return false;
}

/// Wakes the rank whose wait_any ends first, unless a message on its way can end earlier.
/// All later communication is started by this rank or by ranks that wait longer, so it
/// cannot end earlier.
bool Engine::end_wait_for_any() {
    constexpr Picoseconds kNever = std::numeric_limits<Picoseconds>::max();
    std::pair<Picoseconds, int> first{kNever, -1};
    for (const int index : wait_for_any_) {
        const RankState& state = rank(index);
        if (const Launch* launch = first_to_end(state.any_of))
            first = std::min(first,
                             {std::max(launch->end, state.virtual_device.now()), index});
    }
    if (first.second < 0 || network_.next_event() <= first.first) return false;
    std::erase(wait_for_any_, first.second);
    scheduler_.make_ready(first.second);
    return true;
}

/// Adds to the trace the communications that never end; they are drawn up to the stop.
void Engine::trace_open(Picoseconds stop) {
    if (!trace_.is_on()) return;
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

/// Returns how long a collective takes. In a group, the latency that earlier collectives
/// have paid is subtracted: only the longest latency counts. The class Group says what
/// NCCL does, and what the model leaves out.
Picoseconds Engine::time_in_group(const CollectiveCall& call, const Team& team,
                                  const Meeting& meeting) const {
    const Picoseconds alone =
        collective_time(call, options_.spec, team.ranks, team.sharers);
    if (meeting.first->launch->posted.size() == 1 || alone == kUncountable) return alone;
    const Picoseconds latency = collective_latency(call, options_.spec, team.ranks);
    const Picoseconds paid = latency_paid(meeting);
    for (const Posted* posted : meeting.arrived)
        posted->launch->latency = std::max(posted->launch->latency, latency);
    return alone - std::min(latency, paid);
}

/// Called when it is the copy's turn. The copy's data move when its link is free.
void Engine::begin_copy(Posted& posted) {
    const Picoseconds ready = posted.launch->turn;
    const std::int64_t bytes = posted.operation.input.bytes();
    if (options_.spec.host_links == 0) {
        const Picoseconds time =
            options_.spec.phases ? 0 : message_time(options_.spec.host_copy, bytes);
        return end_copy(posted, {ready, time_sum(ready, time)});
    }
    Message message{
        &posted, nullptr, posted.launch->rank,       posted.launch->rank, bytes,
        ready,   0,       posted.launch->rank_number};
    message.to_host = posted.launch->team == rank(posted.launch->rank).copies_to_host;
    network_.enqueue(message);
}

void Engine::end_copy(Posted& posted, Network::Span span) {
    const CommOperation& copy = posted.operation;
    watchers_.tell(&Watcher::message_begins, posted, posted);
    if (options_.numbers && copy.output.elements() > 0)
        copy.output.device()->transfer_from_host(
            copy.output, copy.input.device()->transfer_to_host(copy.input, copy.at),
            copy.at);
    watchers_.tell(&Watcher::message_ended, posted, posted);
    finish(posted, span);
}

void Engine::end_meeting(Team& team) {
    if (team.meetings.front().first->operation.verb == Verb::split)
        checker_->require_same_groups(team, team.meetings.front());
    const Meeting meeting = std::move(team.meetings.front());
    team.meetings.pop_front();
    ++team.first_meeting;

    if (meeting.unlike) note_unlike(team, meeting);
    const CommRequest operation = meeting.first->operation;
    if (operation.verb == Verb::copy) return begin_copy(*meeting.arrived.front());
    const CollectiveCall call{operation.verb, operation.count, bytes_of(operation.dtype),
                              team.size(), operation.peer < 0 ? 0 : operation.peer};
    const Picoseconds start = start_of(meeting);
    const Network::Span span{start, time_sum(start, time_in_group(call, team, meeting))};

    if (operation.verb == Verb::split) split_team(team, meeting);
    watchers_.tell(&Watcher::collective_begins, team, meeting);
    if (options_.numbers) compute(meeting.arrived);
    watchers_.tell(&Watcher::collective_ended, team, meeting);
    team.count_collective(call, options_.spec);
    for (Posted* posted : meeting.arrived)
        finish(*posted, span);
    list_if_complete(team);
}

/// Keeps the collective for diagnoses, unless an earlier one had the same lines. Ranks
/// take turns as a root, so its line may differ.
void Engine::note_unlike(Team& team, const Meeting& meeting) {
    constexpr std::size_t kKept = 8;
    if (team.unlike.size() >= kKept) return;
    if (facts_of(meeting.first->operation.verb).has_root()) return;
    UnlikeLines unlike{meeting.first->sequence, {}};
    for (const Posted* posted : meeting.arrived) {
        const auto side =
            std::ranges::find(unlike.sides, posted->line(), &UnlikeLines::Side::line);
        if (side != unlike.sides.end())
            side->ranks.push_back(posted->launch->rank);
        else
            unlike.sides.push_back(
                {posted->line(), text_of(posted->operation), {posted->launch->rank}});
    }
    const auto same_lines = [&](const UnlikeLines& known) {
        return std::ranges::equal(known.sides, unlike.sides, {}, &UnlikeLines::Side::line,
                                  &UnlikeLines::Side::line);
    };
    if (std::ranges::none_of(team.unlike, same_lines))
        team.unlike.push_back(std::move(unlike));
}

int CalledLines::times(SourceLine line) const {
    const auto known = std::ranges::find(lines_, line, &Line::line);
    return known == lines_.end() ? 0 : known->times;
}

void CalledLines::note_out_of_order(SourceLine line) {
    const auto known = std::ranges::find(lines_, line, &Line::line);
    last_ = static_cast<std::size_t>(known - lines_.begin());
    if (known == lines_.end())
        lines_.push_back({line, 1});
    else
        ++known->times;
}

void Engine::split_team(const Team& team, const Meeting& meeting) {
    std::map<int, std::vector<std::pair<int, int>>> colours;  // to (key, member)
    for (const Posted* posted : meeting.arrived) {
        const SplitRequest& request = rank(posted->launch->rank).split.asked;
        if (request.color != Communicator::kNoColor)
            colours[request.color].emplace_back(request.key, posted->launch->member);
    }
    std::map<int, int> on_node;
    for (const auto& [colour, members] : colours)
        for (const auto& [key, member] : members)
            ++on_node[options_.spec.node_of(team.ranks[member])];
    for (auto& [colour, members] : colours) {
        std::sort(members.begin(), members.end());
        std::vector<int> ranks;
        for (const auto& [key, member] : members)
            ranks.push_back(team.ranks[member]);
        Team& made = make_team(rank(ranks.front()).split.asked.name, ranks);
        if (colours.size() > 1)
            made.sharers = std::ranges::max_element(on_node, {}, [](const auto& node) {
                               return node.second;
                           })->second;
        for (int member = 0; member < made.size(); ++member) {
            RankState::Split& split = rank(ranks[member]).split;
            split.team = &made;
            split.member = member;
        }
    }
}

/// Prefetches what the message touches. The two ranks used this memory when they last
/// ran; with a thousand ranks it has left the caches since then.
void Engine::prefetch(const Message& message) const {
    for (const Posted* side : {message.send, message.recv}) {
        __builtin_prefetch(side);
        __builtin_prefetch(side->launch);
    }
    __builtin_prefetch(ranks_[message.source].get());
}

/// Prefetches what count() will touch. The launches must be in the cache by now.
void Engine::prefetch_counts(const Message& message) const {
    for (const Posted* side : {message.send, message.recv}) {
        const Launch& launch = *side->launch;
        const auto verb = static_cast<std::size_t>(side->operation.verb);
        __builtin_prefetch(&launch.team->counts[launch.member][verb]);
        __builtin_prefetch(&launch.team->sent[launch.member]);
    }
}

bool Engine::pass_messages() {
    constexpr std::size_t kAhead = 4;
    const std::vector<Message> messages = std::exchange(paired_, {});
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const Message& message = messages[i];
        if (i + kAhead < messages.size()) prefetch(messages[i + kAhead]);
        if (i + kAhead / 2 < messages.size()) prefetch_counts(messages[i + kAhead / 2]);
        if (message.send->operation.is_no_message(message.send->launch->member))
            deliver(message, {message.ready, message.ready});
        else if (is_alone(message))
            deliver(message, network_.pass(message));
        else
            network_.enqueue(message);
    }
    return !messages.empty();
}

/// Adds the message to both sides' counts.
void Engine::count(const Message& message) const {
    const Launch& sender = *message.send->launch;
    if (!message.send->operation.all_to_all_v)
        sender.team->sent[sender.member].note(message.send->operation.peer);
    const bool same_node = options_.spec.same_node(message.source, message.destination);
    for (const Posted* side : {message.send, message.recv}) {
        const Launch& launch = *side->launch;
        const auto verb = static_cast<std::size_t>(side->operation.verb);
        launch.team->counts[launch.member][verb][same_node ? 0 : 1].add(
            message_share(side->operation.verb, message.bytes));
    }
}

/// Returns whether no message can use this message's ports earlier: only its two ranks
/// use the ports, both ranks are blocked on the message (or have ended), and they have no
/// other open send or recv. Then the message need not wait its turn in virtual time.
bool Engine::is_alone(const Message& message) const {
    const auto blocked_on = [&](const Launch& launch) {
        const RankState& state = *ranks_[launch.rank];
        return (state.waiting == &launch || state.ended) && state.message_launches == 1;
    };
    return message.send->launch->undone_sends == 1 &&
           message.recv->launch->undone_recvs == 1 && blocked_on(*message.send->launch) &&
           blocked_on(*message.recv->launch) &&
           !network_.is_shared(message.source, message.destination);
}

void Engine::deliver(const Message& message, Network::Span span) {
    if (message.recv == nullptr) return end_copy(*message.send, span);
    watchers_.tell(&Watcher::message_begins, *message.send, *message.recv);
    const Tensor& output = message.recv->operation.output;
    if (options_.numbers && output.elements() > 0)
        output.device()->transfer(output.flat(), message.send->operation.input.flat(),
                                  message.recv->operation.at);
    watchers_.tell(&Watcher::message_ended, *message.send, *message.recv);
    if (!message.send->operation.is_no_message(message.send->launch->member))
        count(message);
    if (trace_.is_on())  // copying the name costs more than this check
        trace_.flow({message.source, message.destination,
                     message.send->launch->team->name, span.start, span.end,
                     message.bytes});
    finish(*message.send, span);
    finish(*message.recv, span);
}

void Engine::finish(Posted& posted, Network::Span span) {
    Launch& launch = *posted.launch;
    require_countable(span.end, launch.rank, launch.at);
    posted.done = true;
    const bool first = launch.undone == static_cast<int>(launch.posted.size());
    launch.started = first ? span.start : std::min(launch.started, span.start);
    launch.end = std::max(launch.end, span.end);
    if (!is_point_to_point(posted.operation.verb)) launch.turn = span.end;
    launch.undone_sends -= posted.operation.verb == Verb::send;
    launch.undone_recvs -= posted.operation.verb == Verb::recv;
    if (--launch.undone == 0) close(launch);
}

void Engine::close(Launch& launch) {
    RankState& state = rank(launch.rank);
    Member& side = launch.team->members[launch.member];
    launch.state = Launch::State::closed;
    side.free_at = launch.end;
    if (launch.is_copy())
        state.virtual_device.copied(launch.started, launch.end, launch.at);
    else
        state.virtual_device.communicated(launch.started, launch.end, launch.at);
    const bool traces = trace_.is_on() && !launch.posted.empty();
    launch.traced =
        traces ? trace_.event(span_of(launch, state.virtual_device.micro_batch())) : -1;
    if (launch.counted) --state.message_launches;
    watchers_.tell(&Watcher::closing, launch);
    if (state.waiting == &launch) {
        state.waiting = nullptr;
        scheduler_.make_ready(launch.rank);
        ++woken_;
    } else {
        side.note_unwaited(launch);
    }
    launch.posted.clear();
    side.first = launch.next;
    if (side.first == nullptr) side.last = nullptr;
    intrusive_ptr_release(&launch);
    if (side.first != nullptr) open(*side.first);
}

// Ending a run that cannot continue.

/// Adds facts about the whole run to a mistake that a check of one rank found.
void Engine::complete_diagnosis() const {
    try {
        if (failure_) std::rethrow_exception(failure_);
    } catch (FaultError& fault) {
        checker_->complete(fault.diagnosis());
    } catch (...) {
    }
}

/// Uses only virtual quantities: the result must not show which side of a collective or
/// message came last on the host.
Engine::Order Engine::order_of(const Mistake& mistake) const {
    if (mistake.posted == nullptr) {
        const RankState& state = *ranks_[mistake.rank];
        return {state.virtual_device.now(), mistake.rank, -1, 0, 0, 0};
    }
    const Posted& posted = *mistake.posted;
    const Team& team = *posted.launch->team;
    if (is_point_to_point(posted.operation.verb)) {
        const Posted& send =
            posted.operation.verb == Verb::send ? posted : *posted.partner;
        return {std::max(posted.launch->opened, posted.partner->launch->opened),
                std::min(posted.launch->rank, posted.partner->launch->rank),
                team.id,
                1,
                send.launch->rank,
                static_cast<std::int64_t>(send.sequence)};
    }
    Order order{0,       posted.launch->rank,
                team.id, 0,
                0,       static_cast<std::int64_t>(posted.sequence)};
    for (const Posted* side : meeting_of(posted).arrived) {
        if (side == nullptr) continue;
        order[0] = std::max(order[0], side->launch->opened);
        order[1] = std::min<std::int64_t>(order[1], side->launch->rank);
    }
    return order;
}

bool Engine::note_failure() {
    if (mistakes_.empty()) return false;
    const Mistake& first = *std::min_element(
        mistakes_.begin(), mistakes_.end(),
        [&](const Mistake& a, const Mistake& b) { return order_of(a) < order_of(b); });
    if (first.posted != nullptr) {
        note_diagnosis(checker_->explain_difference(*first.posted));
        return true;
    }
    failure_ = rank(first.rank).failure;
    failed_rank_ = first.rank;
    return true;
}

/// Ends the run with this diagnosis.
void Engine::note_diagnosis(Diagnosis diagnosis) {
    trace_open(diagnosis.time);
    failure_ = std::make_exception_ptr(FaultError(std::move(diagnosis)));
}

/// Returns how long the bytes that the ranks have sent take on the links, where each node
/// spreads its bytes for other nodes over its ports.
Picoseconds Engine::link_roof() const {
    const ClusterSpec& spec = options_.spec;
    const int ports =
        spec.network_ports > 0
            ? std::min(spec.network_ports, spec.devices_per_node)
            : std::min<int>(spec.devices_per_node, static_cast<int>(ranks_.size()));
    Picoseconds longest = 0, communication = 0;
    std::map<int, std::int64_t> of_node;
    for (std::size_t index = 0; index < ranks_.size(); ++index) {
        const RankReport& report = ranks_[index]->report;
        communication = std::max(communication, report.time.communication);
        std::int64_t inside = 0;
        for (const Traffic& traffic : report.traffic)
            (traffic.between_nodes ? of_node[spec.node_of(static_cast<int>(index))]
                                   : inside) += traffic.bytes_sent;
        longest = std::max(longest, time_at_rate(inside, spec.inside.bytes_per_second));
    }
    for (const auto& [node, bytes] : of_node)
        longest =
            std::max(longest, time_at_rate(bytes, spec.between.bytes_per_second * ports));
    // A node's switches that add up send fewer bytes than are counted.
    return std::min(longest, communication);
}

RunReport Engine::report() {
    RunReport whole;
    for (const auto& state : ranks_) {
        state->report.time = state->virtual_device.time();
        state->report.memory = state->virtual_device.memory();
        state->report.flops = state->virtual_device.flops();
        state->report.time.end =
            std::max(state->report.time.end, state->virtual_host.time().end);
        state->report.host.compute = state->virtual_host.time().compute;
        state->report.host.flops = state->virtual_host.flops();
        state->report.host.memory = state->virtual_host.memory();
    }
    for (const auto& team : teams_) {
        team->settle_counts();
        for (int member = 0; member < team->size(); ++member)
            append_traffic(team->name, team->counts[member],
                           rank(team->ranks[member]).report.traffic);
    }
    for (const auto& state : ranks_) {
        const VirtualDevice& device = state->virtual_device;
        whole.roof.products = std::max(whole.roof.products, device.product_roof());
        whole.roof.memory = std::max(whole.roof.memory, device.memory_roof());
    }
    whole.roof.links = link_roof();
    for (const auto& state : ranks_)
        whole.ranks.push_back(std::move(state->report));
    trace_.move_into(whole);
    return whole;
}

}  // namespace lockstep::sim
