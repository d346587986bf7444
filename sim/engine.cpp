#include "sim/engine.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "sim/check/checker.hpp"
#include "sim/check/lifecycle.hpp"
#include "sim/check/unwaited.hpp"
#include "sim/comm.hpp"
#include "sim/device.hpp"
#include "sim/traffic.hpp"
#include "src/core/require.hpp"

namespace lockstep::sim {

Engine::Engine(ClusterOptions options)
    : options_(std::move(options)),
      scheduler_(options_.executor, options_.workers, options_.schedule_seed),
      trace_(options_.trace),
      network_(options_.spec, options_.ranks),
      batches_(*this),
      handle_(std::make_shared<Engine*>(this)) {
    std::vector<int> all(static_cast<std::size_t>(options_.ranks));
    std::iota(all.begin(), all.end(), 0);
    Team& world = make_team("world", std::move(all));
    for (int i = 0; i < options_.ranks; ++i) {
        ranks_.push_back(
            std::make_unique<RankState>(i, options_, scheduler_, trace_, check_));
        RankState& state = *ranks_.back();
        state.device = options_.device_factory ? options_.device_factory(i, state.clock)
                                               : std::make_unique<Device>(i, state.clock);
        state.world = make_communicator(world, i);
    }
    if (options_.check == CheckLevel::full) check_.watch(*this);
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
    team->ranks = std::move(ranks);
    teams_.push_back(std::move(team));
    return *teams_.back();
}

std::unique_ptr<Communicator> Engine::make_communicator(Team& team, int member) {
    const int index = team.ranks[member];
    return std::make_unique<Comm>(handle_, *rank(index).device, team, member,
                                  team.lifetimes[member].made_at);
}

RunReport Engine::run(const Program& program) {
    const auto body = [&](int index) { run_rank(index, program); };
    const auto quiet = [&] { return on_quiet(); };
    scheduler_.run(options_.ranks, body, quiet);
    if (failure_) stop();
    return report();
}

/// A mistake carries what the run has left.
void Engine::stop() {
    try {
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
        check_.tell_of(index, &Watcher::ended, index);
    } catch (const Cancelled&) {
        throw;
    } catch (...) {
        note_mistake(index, std::current_exception());
    }
    state.ended = true;
}

void Engine::note_mistake(int index, std::exception_ptr what) {
    RankState& state = rank(index);
    if (state.failure) return;
    state.failure = std::move(what);
    mistakes_.push_back({index, nullptr});
}

// What ranks do.

Work Engine::launch(Team& team, int member, std::span<CommOperation> operations,
                    SourceLine at) {
    Batch& batch = *batches_.take();
    batch.team = &team;
    batch.member = member;
    batch.rank = team.ranks[member];
    batch.at = at;
    batch.state = Batch::State::queued;
    batch.number = ++team.members[member].batches;
    batch.issued = rank(batch.rank).clock.now();
    batch.next = nullptr;
    post(batch, operations);
    Work work(&batch);
    check_.tell_of(batch.rank, &Watcher::launched, batch);
    intrusive_ptr_add_ref(&batch);  // the queue's, until it closes

    Member& side = team.members[member];
    if (side.first == nullptr) {
        side.first = side.last = &batch;
        open(batch);
    } else {
        side.last->next = &batch;
        side.last = &batch;
    }
    return work;
}

void Engine::post(Batch& batch, std::span<CommOperation> operations) {
    RankState& state = rank(batch.rank);
    Member& side = batch.team->members[batch.member];
    batch.undone = static_cast<int>(operations.size());
    batch.undone_sends = batch.undone_recvs = 0;
    batch.posted.reserve(operations.size());
    for (CommOperation& operation : operations) {
        const bool message = is_point_to_point(operation.verb);
        batch.undone_sends += operation.verb == Verb::send;
        batch.undone_recvs += operation.verb == Verb::recv;
        batch.posted.emplace_back(batch, message ? side.messages++ : side.collectives++,
                                  std::move(operation));
        note_past(batch.posted.back());
    }
    batch.counted = batch.has_messages();
    if (batch.counted) ++state.message_batches;
    batch.index_by_peer();
}

void Engine::note_past(const Posted& posted) {
    RankState& state = rank(posted.batch->rank);
    const CommOperation& operation = posted.operation;
    // The many parts of one call are one of its rank's last operations.
    if (operation.all_to_all_v && &posted != posted.batch->posted.data()) return;
    state.history[state.launched++ % RankState::kHistory] = past_of(posted);
}

void Engine::wait(Batch& batch, SourceLine at) {
    require(scheduler_.current() == batch.rank, at, "rank {} waited for work of rank {}",
            scheduler_.current(), batch.rank);
    RankState& state = rank(batch.rank);
    if (batch.state != Batch::State::closed) {
        state.waiting = &batch;
        scheduler_.suspend();
    }
    state.clock.wait_until(batch.end);
    Member& side = batch.team->members[batch.member];
    note_waited(side, batch.number);
    side.waited = std::max(side.waited, batch.number);
    check_.tell_of(batch.rank, &Watcher::waited, batch, at);
}

std::unique_ptr<Communicator> Engine::split(Team& team, int member,
                                            const SplitRequest& request, SourceLine at) {
    RankState& state = rank(team.ranks[member]);
    state.split = {request, nullptr, 0};
    CommOperation operation;
    operation.verb = Verb::split;
    operation.at = at;
    launch(team, member, {&operation, 1}, at).wait(at);
    if (state.split.team == nullptr) return nullptr;
    Team& made = *state.split.team;
    made.lifetimes[state.split.member].made_at = at;
    return make_communicator(made, state.split.member);
}

void Engine::communicator_went(Team& team, int member) {
    const Member& side = team.members[member];
    team.lifetimes[member].went = true;
    const int index = team.ranks[member];
    if (side.waited == side.batches || current() != index) return;
    if (std::optional<Diagnosis> diagnosis = explain_open_works(*this, team, member))
        note_mistake(index, std::make_exception_ptr(FaultError(std::move(*diagnosis))));
}

void Engine::expect_replicated(const Team& team, int member, const Tensor& tensor,
                               const std::string& name, SourceLine at) {
    const int index = team.ranks[member];
    expectations_.note(team, member, tensor, name, at, rank(index).clock.now());
}

void Engine::declare_replicas(const Team& team, int member, const Tensor& tensor,
                              const std::string& name, SourceLine at) {
    const int index = team.ranks[member];
    check_.tell_of(index, &Watcher::declared, team, member, tensor, name, at);
}

// Finding partners.

void Engine::open(Batch& batch) {
    const Member& side = batch.team->members[batch.member];
    batch.state = Batch::State::open;
    batch.opened = std::max(batch.issued, side.free_at);
    batch.started = batch.end = batch.turn = batch.opened;
    if (batch.undone == 0) return close(batch);
    for (Posted& posted : batch.posted) {
        if (!is_point_to_point(posted.operation.verb))
            arrive(posted);
        else if (posted.partner == nullptr)
            pair(posted);
    }
}

void Engine::arrive(Posted& posted) {
    Team& team = *posted.batch->team;
    const auto place = static_cast<std::size_t>(posted.sequence - team.first_meeting);
    while (team.meetings.size() <= place) {
        team.meetings.emplace_back();
        team.meetings.back().arrived.resize(team.members.size());
    }
    Meeting& meeting = team.meetings[place];
    meeting.arrived[posted.batch->member] = &posted;
    if (meeting.first == nullptr) meeting.first = &posted;
    ++meeting.present;
    if (!same_signature(meeting.first->operation, posted.operation) && !meeting.differs) {
        meeting.differs = true;
        mistakes_.push_back({posted.batch->rank, &posted});
    }
    list_if_complete(team);
}

/// A team's collectives end in their order: the first one is listed when all are there.
void Engine::list_if_complete(Team& team) {
    if (team.meetings.empty()) return;
    Meeting& meeting = team.meetings.front();
    if (meeting.present < team.size() || meeting.differs || meeting.listed) return;
    meeting.listed = true;
    complete_.push_back(&team);
}

void Engine::pair(Posted& posted) {
    const Team& team = *posted.batch->team;
    const CommOperation& mine = posted.operation;
    Batch* const other = team.members[mine.peer].first;
    if (other == nullptr || other->state != Batch::State::open) return;
    const Verb wanted = mine.verb == Verb::send ? Verb::recv : Verb::send;
    Posted* const partner = other->unpaired(wanted, posted.batch->member);
    if (partner == nullptr) return;
    posted.partner = partner;
    partner->partner = &posted;
    if (mine.count != partner->operation.count ||
        mine.dtype != partner->operation.dtype) {
        mistakes_.push_back({posted.batch->rank, &posted});
        return;
    }
    Posted& send = mine.verb == Verb::send ? posted : *partner;
    Posted& recv = *send.partner;
    paired_.push_back(
        {&send, &recv, send.batch->rank, recv.batch->rank,
         mine.count * bytes_of(mine.dtype), std::max(posted.batch->opened, other->opened),
         static_cast<std::uint64_t>(&send - send.batch->posted.data()), send.sequence});
}

RunReport Engine::report() {
    RunReport whole;
    for (const auto& state : ranks_) {
        state->report.time = state->clock.time();
        state->report.memory = state->clock.memory();
        state->report.flops = state->clock.flops();
    }
    for (const auto& team : teams_) {
        for (int member = 0; member < team->size(); ++member)
            add_traffic(*team, member, rank(team->ranks[member]).report.traffic);
    }
    for (const auto& state : ranks_)
        whole.ranks.push_back(std::move(state->report));
    trace_.move_into(whole);
    return whole;
}

}  // namespace lockstep::sim
