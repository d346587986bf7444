#include "src/pipeline/pipeline.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/parallel/placement.hpp"
#include "src/pipeline/validate.hpp"

namespace lockstep {

namespace {

constexpr bool is_of_forward(InstructionKind kind) {
    return kind == InstructionKind::forward || kind == InstructionKind::send_activation ||
           kind == InstructionKind::recv_activation;
}

/// Returns the plan if the line and the chunks fit it; else throws UsageError.
const PipelinePlan& fitting(const PipelinePlan& plan, const Communicator& line,
                            const std::vector<Module*>& chunks, SourceLine at) {
    const Schedule& schedule = plan.schedule();
    require(line.size() == schedule.stages, at,
            "schedule '{}' has {} stages, but '{}' has {} ranks; one for "
            "each is expected",
            schedule.name, schedule.stages, line.name(), line.size());
    require(chunks.size() == static_cast<std::size_t>(schedule.chunks), at,
            "schedule '{}' has {} chunks a stage, but stage {} "
            "was given {} modules; one for each is expected",
            schedule.name, schedule.chunks, line.rank(), chunks.size());
    const auto none = std::ranges::find(chunks, nullptr);
    require(none == chunks.end(), at,
            "chunk {} of stage {} is null; a module is expected", none - chunks.begin(),
            line.rank());
    return plan;
}

}  // namespace

Pipeline::Pipeline(Device& device, Communicator& line, const PipelinePlan& plan,
                   std::vector<Module*> chunks, PartBoundary boundary, SourceLine at)
    : device_(device),
      line_(line),
      plan_(fitting(plan, line, chunks, at)),
      chunks_(std::move(chunks)),
      boundary_(std::move(boundary)),
      mail_(line, plan),
      stash_(device, plan, line.rank()),
      used_up_(chunks_.size(), 1) {
    require(static_cast<bool>(boundary_.shape), at,
            "a pipeline needs a function that gives the shape of the tensor between two "
            "parts; none was given");
    const Schedule& schedule = plan.schedule();
    for (int chunk = 0; chunk < schedule.chunks; ++chunk)
        if (schedule.part(line.rank(), chunk) == 0)
            chunks_[chunk]->set_input_gradient(false);
}

Tensor Pipeline::run(const Loss& loss, std::span<const MicroBatch> micro_batches,
                     SourceLine at) {
    begin_run(&loss, micro_batches, at);
    require_shared_gradients();
    for (const Place place : plan_.schedule().places(line_.rank()))
        execute(place);
    mail_.finish();
    return std::exchange(total_loss_, {});
}

std::vector<Tensor> Pipeline::infer(std::span<const MicroBatch> micro_batches,
                                    SourceLine at_line) {
    begin_run(nullptr, micro_batches, at_line);
    for (const Place place : plan_.schedule().places(line_.rank())) {
        const InstructionKind kind = at(place).kind;
        if (is_message(kind) || is_of_forward(kind)) execute(place);
    }
    mail_.finish();
    return std::exchange(results_, {});
}

void Pipeline::begin_run(const Loss* loss, std::span<const MicroBatch> micro_batches,
                         SourceLine at) {
    require_batches(micro_batches, at);
    loss_ = loss;
    micro_batches_ = micro_batches;
    at_ = at;
    total_loss_ = {};
    losses_.assign(keeps_losses_ ? micro_batches.size() : 0, {});
    results_.clear();
    flights_ = std::vector<Flight>(micro_batches.size() * chunks_.size());
    std::ranges::fill(used_up_, char{1});
}

/// Requires the schedule's number of micro-batches, and inputs if this stage needs them.
void Pipeline::require_batches(std::span<const MicroBatch> micro_batches,
                               SourceLine at) const {
    const Schedule& schedule = plan_.schedule();
    const auto count = static_cast<std::size_t>(schedule.micro_batches);
    require(micro_batches.size() == count, at,
            "schedule '{}' has {} micro-batches, but {} were given", schedule.name, count,
            micro_batches.size());
    const auto& parts = schedule.parts[line_.rank()];
    if (std::ranges::find(parts, 0) == parts.end()) return;
    const auto none = std::ranges::find_if_not(
        micro_batches,
        [](const MicroBatch& batch) { return static_cast<bool>(batch.input); });
    require(none == micro_batches.end(), at,
            "stage {} reads the inputs, but micro-batch {} has no input", line_.rank(),
            none - micro_batches.begin());
}

// lesson: pipeline-executor
void Pipeline::execute(Place place) {
    if (on_host_ && is_computation(at(place).kind)) fetch_from_host(place);
    switch (at(place).kind) {
        case InstructionKind::forward:
            return forward(place);
        case InstructionKind::backward:
            return backward(place);
        case InstructionKind::backward_input:
            return backward_input(place);
        case InstructionKind::backward_weight:
            return backward_weight(place);
        case InstructionKind::send_activation:
        case InstructionKind::recv_activation:
        case InstructionKind::send_gradient:
        case InstructionKind::recv_gradient:
            if (!at(place).together) post(plan_.schedule().together(place));
            return;
        case InstructionKind::reduce_gradients:
            return reduce_gradients(place);
        case InstructionKind::optimizer_step:
            return update(place);
    }
}

void Pipeline::forward(Place place) {
    Flight& in_flight = flight(place);
    const MicroBatch& batch = micro_batch(place);
    const Tensor x =
        is_first(place) ? batch.input : arriving(in_flight.x, in_flight.x_arrives, place);
    const PhaseScope phase(device_, Phase::forward, at(place).micro_batch);
    in_flight.saved.set_loss_weight(batch.weight);
    const Tensor y = stash_.with_weights(place, chunk(place), [&] {
        return loss_ ? chunk(place).forward(x, in_flight.saved, at_)
                     : chunk(place).infer(x, at_);
    });
    for (const Tensor& term : in_flight.saved.take_losses())
        add_to_total(place, term);
    if (on_host_ && loss_) send_to_host(place);
    if (is_last(place))
        add_loss(place, y);
    else
        finish_forward(place, y);
}

void Pipeline::backward(Place place) {
    Flight& in_flight = flight(place);
    const Tensor dy = arriving(in_flight.dy, in_flight.dy_arrives, place);
    begin_gradients(place);
    const PhaseScope phase(device_, Phase::backward, at(place).micro_batch);
    finish_backward(place, stash_.with_weights(place, chunk(place), [&] {
        return chunk(place).backward(dy, in_flight.saved, at_);
    }));
    in_flight.saved = {};
    if (on_host_) on_host_->let_go(0);
}

// lesson: end

void Pipeline::backward_input(Place place) {
    Flight& in_flight = flight(place);
    const Tensor dy = arriving(in_flight.dy, in_flight.dy_arrives, place);
    const PhaseScope phase(device_, Phase::backward_input, at(place).micro_batch);
    finish_backward(place, stash_.with_weights(place, chunk(place), [&] {
        return chunk(place).backward_input(dy, in_flight.saved, at_);
    }));
    if (on_host_) on_host_->let_go(0);
}

void Pipeline::backward_weight(Place place) {
    Flight& in_flight = flight(place);
    begin_gradients(place);
    const PhaseScope phase(device_, Phase::backward_weight, at(place).micro_batch);
    stash_.with_weights(place, chunk(place), [&] {
        chunk(place).backward_weight(in_flight.saved, at_);
        return true;
    });
    in_flight.saved = {};
}

namespace {

/// Returns whether this kind is the first to read what forward has saved.
constexpr bool begins_backward(InstructionKind kind) {
    return kind == InstructionKind::backward || kind == InstructionKind::backward_input;
}

}  // namespace

void Pipeline::offload_activations(std::int64_t least_bytes) {
    on_host_.emplace(device_, least_bytes);
}

/// Returns the stage's next computation after this instruction; none after the last
/// computation, which is a backward.
Place Pipeline::next_computation(Place place) const {
    const std::vector<Instruction>& list = plan_.schedule().of_stage(place.stage);
    const auto next =
        std::find_if(list.begin() + place.position + 1, list.end(),
                     [](const Instruction& each) { return is_computation(each.kind); });
    if (next == list.end()) return {};
    return {place.stage, static_cast<int>(next - list.begin())};
}

/// Offloads what a forward has saved, unless its backward is the stage's next
/// computation.
void Pipeline::send_to_host(Place place) {
    const Place next = next_computation(place);
    if (!next || !begins_backward(at(next).kind) || &flight(next) != &flight(place))
        on_host_->send(flight(place).saved);
    on_host_->let_go(1);
}

/// Fetches what this computation needs. Also starts the copies for the next computation;
/// these copies overlap with this computation.
void Pipeline::fetch_from_host(Place place) {
    const bool needed = begins_backward(at(place).kind);
    if (needed) on_host_->fetch(flight(place).saved);
    const Place next = next_computation(place);
    if (next && begins_backward(at(next).kind)) on_host_->fetch(flight(next).saved);
    if (needed) on_host_->wait(flight(place).saved);
}

void Pipeline::add_loss(Place place, const Tensor& y) {
    if (!loss_) {
        results_.resize(micro_batches_.size());
        results_[at(place).micro_batch] = y;
        return;
    }
    const MicroBatch& batch = micro_batch(place);
    const LossResult result = (*loss_)(device_, y, batch.target, batch.weight, at_);
    require(result.loss && result.gradient, at_,
            "for micro-batch {} the loss function returned no {}", at(place).micro_batch,
            result.loss ? "gradient" : "value");
    flight(place).dy = result.gradient;
    add_to_total(place, result.loss);
}

void Pipeline::add_to_total(Place place, const Tensor& loss) {
    if (keeps_losses_) {
        Tensor& own = losses_[at(place).micro_batch];
        if (!own) {
            own = device_.empty(loss.shape(), loss.dtype());
            device_.copy(own, loss);
        } else {
            device_.add(own, loss);
        }
    }
    if (total_loss_)
        device_.add(total_loss_, loss);
    else
        total_loss_ = loss;
}

void Pipeline::finish_forward(Place place, const Tensor& y) {
    const Shape expected = boundary_.shape(micro_batch(place));
    require(y.shape() == expected && y.dtype() == boundary_.dtype, at_, [&] {
        return fmt::format(
            "part {} of the model, on stage {}, made {} {} of micro-batch {}, but the "
            "tensor between two parts is declared as {} {}",
            part(place), place.stage, y.shape(), y.dtype(), at(place).micro_batch,
            expected.text(), name_of(boundary_.dtype));
    });
    if (Flight* next = neighbour(place, +1))
        next->x = y;
    else
        flight(place).y = y;
}

/// Returns the tensor that the part before or after has made, here or on another device.
Tensor Pipeline::arriving(Tensor& local, StageMail::Arrival& arrival, Place place) {
    if (!arrival.work) return std::exchange(local, {});
    Tensor message = mail_.wait(arrival);
    if (group_ == nullptr) return message;
    Tensor whole = device_.empty(boundary_.shape(micro_batch(place)), boundary_.dtype);
    group_->all_gather(whole, message, at_).wait();
    return whole;
}

void Pipeline::finish_backward(Place place, const Tensor& dx) {
    if (is_first(place)) return;
    if (Flight* before = neighbour(place, -1))
        before->dy = dx;
    else
        flight(place).dx = dx;
}

/// Posts messages that begin together; infer() posts only messages of forwards.
void Pipeline::post(Positions together) {
    std::vector<StageMail::Message> messages;
    for (int i = together.first; i < together.last; ++i) {
        const Place place{line_.rank(), i};
        if (loss_ || is_of_forward(at(place).kind)) messages.push_back(message(place));
    }
    if (!messages.empty()) mail_.post(messages);
}

StageMail::Message Pipeline::message(Place place) {
    Flight& in_flight = flight(place);
    switch (at(place).kind) {
        case InstructionKind::send_activation:
            return sent(place, in_flight.y);
        case InstructionKind::recv_activation:
            return received(place, in_flight.x_arrives);
        case InstructionKind::send_gradient:
            return sent(place, in_flight.dx);
        default:
            return received(place, in_flight.dy_arrives);
    }
}

StageMail::Message Pipeline::sent(Place place, Tensor& tensor, SourceLine at) {
    Tensor message = std::exchange(tensor, {});
    if (group_ != nullptr) {
        const std::int64_t rows = message_shape(place)[0];
        message = message.rows(group_->rank() * rows, rows);
    }
    return {plan_.index().peer(place), std::move(message), nullptr, line_of(place, at)};
}

Shape Pipeline::message_shape(Place place) const {
    const Shape shape = boundary_.shape(micro_batch(place));
    if (group_ == nullptr) return shape;
    require(shape[0] % group_->size() == 0, at_,
            "a tensor of shape {} between two stages cannot be scattered over {} ranks; "
            "its first dimension is expected to be a multiple",
            shape.text(), group_->size());
    return shape.with_first(shape[0] / group_->size());
}

StageMail::Message Pipeline::received(Place place, StageMail::Arrival& arrival,
                                      SourceLine at) {
    const Shape shape = message_shape(place);
    return {plan_.index().peer(place), device_.empty(shape, boundary_.dtype), &arrival,
            line_of(place, at)};
}

/// Returns the instruction's line in the schedule's file, if it was read from one.
SourceLine Pipeline::line_of(Place place, SourceLine otherwise) const {
    const int line = at(place).line;
    if (line == 0) return otherwise;
    return SourceLine::of(plan_.schedule().file, line);
}

Pipeline::Flight& Pipeline::flight(int chunk, int micro_batch) {
    return flights_[static_cast<std::size_t>(chunk) * micro_batches_.size() +
                    static_cast<std::size_t>(micro_batch)];
}

Pipeline::Flight* Pipeline::neighbour(Place place, int step) {
    const Instruction& work = at(place);
    const InstructionKind kind =
        step > 0 ? InstructionKind::forward : InstructionKind::backward;
    const Place there = plan_.index().find(kind, part(place) + step, work.micro_batch);
    if (there.stage != place.stage) return nullptr;
    return &flight(at(there).chunk, work.micro_batch);
}

// Gradients that other devices contribute to: their reductions and updates.

namespace {

/// Checks that a stage reduces the gradients that other devices contribute to, and not
/// too early.
class ReductionCheck {
  public:
    ReductionCheck(const Schedule& schedule, int stage)
        : schedule_(schedule),
          stage_(stage),
          states_(static_cast<std::size_t>(schedule.chunks)) {}

    /// If `updates`, optimizer steps use up the gradients.
    void run(bool updates) {
        for (const Place place : schedule_.places(stage_))
            follow(place, updates);
        for (int chunk = 0; chunk < schedule_.chunks; ++chunk)
            require(states_[chunk] != State::partial,
                    [&] { return missing(chunk, "the end"); });
    }

  private:
    enum class State { none, partial, reduced };

    void follow(Place place, bool updates) {
        const Instruction& work = schedule_.at(place);
        State& state = states_[work.chunk];
        switch (work.kind) {
            case InstructionKind::backward:
            case InstructionKind::backward_weight:
                require(state != State::reduced, [&] {
                    return schedule_.where(place) +
                           ": it adds to gradients that have been reduced (R) already";
                });
                state = State::partial;
                return;
            case InstructionKind::reduce_gradients:
                state = State::reduced;
                return;
            case InstructionKind::optimizer_step:
                require(state != State::partial,
                        [&] { return missing(work.chunk, schedule_.where(place)); });
                if (updates) state = State::none;
                return;
            default:
                return;
        }
    }

    std::string missing(int chunk, const std::string& before) const {
        return fmt::format(
            "other devices contribute to the gradients of stage {}, chunk "
            "{}, but schedule '{}' does not reduce them (R) before {}",
            stage_, chunk, schedule_.name, before);
    }

    const Schedule& schedule_;
    int stage_;
    std::vector<State> states_;
};

/// Throws UsageError if gradients that other devices contribute to are reduced before
/// their last contribution, or are not reduced before an optimizer step or the schedule's
/// end. Without `updates`, optimizer steps do nothing and gradients keep adding up.
void require_reductions(const Schedule& schedule, int stage, bool updates) {
    ReductionCheck(schedule, stage).run(updates);
}

}  // namespace

void Pipeline::reduce_over(Communicator& replicas, SourceLine at) {
    for (Module* chunk : chunks_)
        declare_replicas_of(replicas, *chunk, at);
}

void Pipeline::reduce_over(Mesh& mesh, const std::vector<std::string>& axes,
                           SourceLine at) {
    for (Module* chunk : chunks_)
        declare_replicas_of(mesh, axes, *chunk, at);
}

void Pipeline::sync_by(std::vector<GradientSync*> syncs, SourceLine at) {
    require(syncs.size() == chunks_.size() && std::ranges::count(syncs, nullptr) == 0, at,
            "{} gradient syncs ({} of them null) for {} chunks; one for each chunk is "
            "expected",
            syncs.size(), std::ranges::count(syncs, nullptr), chunks_.size());
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk)
        require(std::ranges::is_permutation(syncs[chunk]->parameters(),
                                            chunks_[chunk]->parameters()),
                at, "the gradient sync of chunk {} has other parameters than the chunk",
                chunk);
    syncs_ = std::move(syncs);
}

void Pipeline::tie(Parameter& parameter, Communicator& sharers, SourceLine at) {
    require(chunk_of(parameter) >= 0, at,
            "{} was tied on stage {}, which has no parameter of that name in its chunks",
            parameter.name(), line_.rank());
    ties_.push_back(&parameter);
    replicate_over(sharers, {&parameter}, Placement::Kind::partial, at);
}

void Pipeline::tie_copies() {
    const Schedule& schedule = plan_.schedule();
    for (int part = 0; part < schedule.part_count(); ++part) {
        if (schedule.holders(part) == 1) continue;
        std::vector<int> holders;
        for (int stage = 0; stage < schedule.stages; ++stage)
            if (std::ranges::count(schedule.parts[stage], part) > 0)
                holders.push_back(stage);
        holders_.push_back(line_.subgroup(holders, fmt::format("part {}", part)));
        for (int chunk = 0; chunk < schedule.chunks; ++chunk)
            if (schedule.part(line_.rank(), chunk) == part)
                for (Parameter* parameter : chunks_[chunk]->parameters())
                    tie(*parameter, *holders_.back());
    }
}

/// Returns the chunk that has the parameter; -1 if none has it.
int Pipeline::chunk_of(const Parameter& parameter) const {
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
        const auto held = chunks_[chunk]->parameters();
        if (std::ranges::find(held, &parameter) != held.end())
            return static_cast<int>(chunk);
    }
    return -1;
}

/// Requires that gradients which other devices contribute to are reduced in time.
void Pipeline::require_shared_gradients() const {
    const Schedule& schedule = plan_.schedule();
    const int stage = line_.rank();
    const bool shares = std::ranges::any_of(chunks_, [](Module* chunk) {
        return std::ranges::any_of(chunk->parameters(), [](const Parameter* parameter) {
            return is_partial(*parameter);
        });
    });
    if (shares) require_reductions(schedule, stage, !optimizers_.empty());
    for (int chunk = 0; chunk < schedule.chunks; ++chunk)
        if (schedule.holders(schedule.part(stage, chunk)) > 1) require_tied(chunk);
}

/// Requires that a chunk's parameters are tied, because another stage has the same part.
void Pipeline::require_tied(int chunk) const {
    const Schedule& schedule = plan_.schedule();
    for (const Parameter* parameter : chunks_[chunk]->parameters()) {
        require(std::ranges::find(ties_, parameter) != ties_.end(),
                "schedule '{}' has part {} on several stages, so {} on stage {} must be "
                "tied to the other copy; see Pipeline::tie_copies",
                schedule.name, schedule.part(line_.rank(), chunk), parameter->name(),
                line_.rank());
    }
}

void Pipeline::update_by(std::vector<Optimizer*> optimizers, SourceLine at) {
    require(optimizers.size() == chunks_.size(), at,
            "{} optimizers for {} chunks; one for each is expected", optimizers.size(),
            chunks_.size());
    const Schedule& schedule = plan_.schedule();
    for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
        require(optimizers[chunk] != nullptr, at,
                "the optimizer of chunk {} is null; one is expected", chunk);
        const bool steps = std::ranges::any_of(
            schedule.of_stage(line_.rank()), [&](const Instruction& each) {
                return each.kind == InstructionKind::optimizer_step &&
                       each.chunk == chunk;
            });
        require(steps, at,
                "schedule '{}' never updates chunk {} of stage {}: add an optimizer step "
                "(U), or step after run() instead of update_by()",
                schedule.name, chunk, line_.rank());
    }
    optimizers_ = std::move(optimizers);
}

void Pipeline::estimate_by(double decay, SourceLine at) {
    require(decay >= 0 && decay < 1, at,
            "the average step has a decay of {}; at least 0 and less than 1 is expected",
            decay);
    stash_.set_decay(decay);
}

void Pipeline::reduce_gradients(Place place) {
    const int chunk = at(place).chunk;
    clear_used_up(chunk, place);
    if (syncs_.empty())
        complete_gradients(chunks_[chunk]->parameters(), nullptr, at_);
    else
        syncs_[chunk]->finish();
}

void Pipeline::update(Place place) {
    const int chunk = at(place).chunk;
    if (optimizers_.empty()) return;
    clear_used_up(chunk, place);
    stash_.before_update(place, *chunks_[chunk]);
    const PhaseScope phase(device_, Phase::update);
    if (syncs_.empty())
        optimizers_[chunk]->step();
    else
        syncs_[chunk]->update(*optimizers_[chunk]);
    stash_.after_update(place, *chunks_[chunk]);
    used_up_[chunk] = 1;
    if (after_update_) after_update_(chunk, plan_.versions().newest(place) + 1);
}

/// Sets gradients to zero before the first contribution since the run's start or the last
/// update. A chunk may add to another chunk's gradients, so all chunks are checked.
void Pipeline::begin_gradients(Place place) {
    for (int chunk = 0; chunk < plan_.schedule().chunks; ++chunk)
        clear_used_up(chunk, place);
}

void Pipeline::clear_used_up(int chunk, Place place) {
    if (!std::exchange(used_up_[chunk], char{0})) return;
    if (!syncs_.empty()) syncs_[chunk]->begin();
    zero_gradients(*chunks_[chunk], std::max(1, passes_left(chunk, place)));
}

/// Returns how many backward passes of the chunk follow, from `place` on, before its
/// gradients are reduced or used in an update.
int Pipeline::passes_left(int chunk, Place place) const {
    const auto& instructions = plan_.schedule().of_stage(line_.rank());
    int passes = 0;
    for (auto i = instructions.begin() + place.position; i != instructions.end(); ++i) {
        if (i->chunk != chunk) continue;
        if (i->kind == InstructionKind::reduce_gradients ||
            i->kind == InstructionKind::optimizer_step)
            break;
        passes += i->kind == InstructionKind::backward ||
                  i->kind == InstructionKind::backward_weight;
    }
    return passes;
}

namespace {

Schedule prepared(const Schedule& schedule) {
    if (!schedule.has_messages()) return with_messages(schedule);
    require_valid(schedule);
    return schedule;
}

}  // namespace

PipelinePlan::PipelinePlan(const Schedule& schedule)
    : PipelinePlan(AsItIs{}, prepared(schedule)) {}

PipelinePlan PipelinePlan::unchecked(Schedule schedule) {
    if (const auto bad = find_bad_number(schedule)) throw UsageError(bad->sentence);
    require(schedule.has_messages() || schedule.stages == 1, [&] {
        return "schedule '" + schedule.name +
               "' has no messages; with_messages_in_place() adds some";
    });
    return {AsItIs{}, std::move(schedule)};
}

PipelinePlan::PipelinePlan(AsItIs /*tag*/, Schedule schedule)
    : schedule_(std::move(schedule)), index_(schedule_), versions_(schedule_) {}

StageMail::StageMail(Communicator& line, const PipelinePlan& plan) : line_(line) {
    const Schedule& schedule = plan.schedule();
    if (schedule.queues == MessageQueues::one) {
        queues_[{-1, -1}].line = &line;
        return;
    }
    for (int stage = 0; stage < schedule.stages; ++stage)
        for (const Place place : schedule.places(stage))
            if (is_send(schedule.at(place).kind))
                queues_[{stage, plan.index().peer(place)}];
    // All ranks make the pairs in one order. A pair is null on ranks outside it.
    for (auto& [ends, queue] : queues_) {
        own_lines_.push_back(line.subgroup(
            {ends.first, ends.second}, fmt::format("{} to {}", ends.first, ends.second)));
        queue.line = own_lines_.back().get();
    }
}

StageMail::Queue& StageMail::queue_of(const Message& message) {
    if (own_lines_.empty()) return queues_.begin()->second;
    const int mine = line_.rank();
    return message.arrival ? queues_.at({message.peer, mine})
                           : queues_.at({mine, message.peer});
}

int StageMail::rank_of(const Message& message) const {
    if (own_lines_.empty()) return message.peer;
    return message.arrival ? 0 : 1;
}

void StageMail::post(const std::vector<Message>& messages) {
    Queue& queue = queue_of(messages.front());
    const auto work = [&]() -> Work {
        if (messages.size() == 1) {
            const Message& one = messages.front();
            return one.arrival ? queue.line->recv(one.tensor, rank_of(one), one.at)
                               : queue.line->send(one.tensor, rank_of(one), one.at);
        }
        Group group = queue.line->group(messages.front().at);
        for (const Message& each : messages) {
            if (each.arrival)
                group.recv(each.tensor, rank_of(each), each.at);
            else
                group.send(each.tensor, rank_of(each), each.at);
        }
        return group.start(messages.front().at);
    }();
    const int number = queue.started++;
    for (const Message& each : messages) {
        if (each.arrival)
            *each.arrival = {each.tensor, work, &queue, number};
        else
            queue.departures.push_back({each.tensor, work, number});
    }
}

Tensor StageMail::wait(Arrival& arrival) {
    arrival.work->wait();
    arrival.work.reset();
    std::deque<Departure>& departures = arrival.queue->departures;
    while (!departures.empty() && departures.front().number <= arrival.number)
        departures.pop_front();
    return std::exchange(arrival.tensor, {});
}

void StageMail::finish() {
    for (auto& [ends, queue] : queues_) {
        if (!queue.departures.empty()) queue.departures.back().work.wait();
        queue.departures.clear();
    }
}

WeightStash::WeightStash(Device& device, const PipelinePlan& plan, int stage)
    : device_(device), plan_(plan) {
    for (const Place place : plan.schedule().places(stage)) {
        if (!is_computation(at(place).kind)) continue;
        if (at(place).estimated)
            trends_[at(place).chunk];
        else
            last_read_[key(place)] = place.position;
    }
}

WeightStash::Values WeightStash::copies_of(Module& chunk) const {
    Values values;
    const MemoryScope scope(device_, MemoryCategory::parameters);
    for (const Parameter* parameter : chunk.parameters()) {
        values.push_back(device_.empty(parameter->shape(), parameter->value.dtype()));
        device_.copy(values.back(), parameter->value);
    }
    return values;
}

// lesson: weight-stash
void WeightStash::before_update(Place place, Module& chunk) {
    const auto trend = trends_.find(at(place).chunk);
    if (trend != trends_.end()) trend->second.before = copies_of(chunk);
    const auto found = last_read_.find({at(place).chunk, plan_.versions().newest(place)});
    if (found == last_read_.end() || found->second < place.position) return;
    kept_[found->first] = copies_of(chunk);
}
// lesson: end

void WeightStash::after_update(Place place, Module& chunk) {
    const auto found = trends_.find(at(place).chunk);
    if (found == trends_.end()) return;
    Trend& trend = found->second;
    const bool first = trend.step.empty();
    std::size_t i = 0;
    for (const Parameter* parameter : chunk.parameters()) {
        const MemoryScope scope(device_, MemoryCategory::parameters);
        if (first) {
            trend.step.push_back(
                device_.empty(parameter->shape(), parameter->value.dtype()));
            device_.fill(trend.step.back(), 0);
        }
        // step = decay step + (1 - decay) (new - old)
        device_.scale(trend.step[i], decay_);
        device_.add(trend.step[i], parameter->value, 1 - decay_);
        device_.add(trend.step[i], trend.before[i], decay_ - 1);
        ++i;
    }
    trend.before.clear();
}

WeightStash::Values* WeightStash::values_of(Place place, Module& chunk,
                                            Values& estimated) {
    if (!at(place).estimated) {
        const auto found = kept_.find(key(place));
        return found == kept_.end() ? nullptr : &found->second;
    }
    const Trend& trend = trends_.at(at(place).chunk);
    const int steps = plan_.versions().read(place) - plan_.versions().newest(place);
    if (trend.step.empty() || steps == 0) return nullptr;
    estimated = copies_of(chunk);
    for (std::size_t i = 0; i < estimated.size(); ++i)
        device_.add(estimated[i], trend.step[i], steps);
    return &estimated;
}

void WeightStash::exchange(Values* values, Module& chunk) {
    if (values == nullptr) return;
    std::size_t i = 0;
    for (Parameter* parameter : chunk.parameters())
        std::swap(parameter->value, (*values)[i++]);
}

void WeightStash::drop(Place place) {
    if (kept_.empty() || at(place).estimated ||
        last_read_.at(key(place)) > place.position)
        return;
    kept_.erase(key(place));
}

}  // namespace lockstep
