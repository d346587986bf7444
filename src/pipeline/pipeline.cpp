#include "src/pipeline/pipeline.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "src/comm/expect.hpp"
#include "src/core/require.hpp"

namespace lockstep {

namespace {

/// The plan, where line and chunks are as many as it has.
const PipelinePlan& fitting(const PipelinePlan& plan,
                            const Communicator& line, std::size_t chunks) {
    const Schedule& schedule = plan.schedule();
    require(line.size() == schedule.stages, [&] {
        return fmt::format(
            "schedule '{}' has {} stages, but '{}' has {} ranks; one for "
            "each is expected",
            schedule.name, schedule.stages, line.name(), line.size());
    });
    require(chunks == static_cast<std::size_t>(schedule.chunks), [&] {
        return fmt::format(
            "schedule '{}' has {} chunks a stage, but stage {} was given "
            "{} modules; one for each is expected",
            schedule.name, schedule.chunks, line.rank(), chunks);
    });
    return plan;
}

}  // namespace

Pipeline::Pipeline(Device& device, Communicator& line,
                   const PipelinePlan& plan, std::vector<Module*> chunks,
                   PartBoundary boundary)
    : device_(device),
      line_(line),
      plan_(fitting(plan, line, chunks.size())),
      chunks_(std::move(chunks)),
      boundary_(std::move(boundary)),
      mail_(line),
      stash_(device, plan, line.rank()),
      used_up_(chunks_.size(), 1) {
    const Schedule& schedule = plan.schedule();
    for (int chunk = 0; chunk < schedule.chunks; ++chunk)
        if (schedule.part(line.rank(), chunk) == 0)
            chunks_[static_cast<std::size_t>(chunk)]->set_input_gradient(
                false);
}

void Pipeline::reduce_over(Communicator& replicas) {
    require_reductions();
    replicas_ = &replicas;
    for (Module* chunk : chunks_)
        for (const Parameter* parameter : chunk->parameters())
            declare_replicas(replicas, parameter->value, parameter->name());
}

void Pipeline::tie(Parameter& parameter, Communicator& sharers) {
    require_reductions();
    ties_.emplace_back(&parameter, &sharers);
    declare_replicas(sharers, parameter.value, parameter.name());
}

/// What is not reduced after the last backward would be stepped with as it
/// is.
void Pipeline::require_reductions() const {
    const Schedule& schedule = plan_.schedule();
    std::vector<char> reduced(chunks_.size(), 0);
    for (const Instruction& work : schedule.of(line_.rank())) {
        char& chunk = reduced[static_cast<std::size_t>(work.chunk)];
        if (work.kind == InstructionKind::reduce_gradients) chunk = 1;
        if (work.kind == InstructionKind::backward ||
            work.kind == InstructionKind::backward_weight)
            chunk = 0;
    }
    const auto missing = std::ranges::find(reduced, char{0});
    require(missing == reduced.end(), [&] {
        return fmt::format(
            "other devices contribute to the gradients of stage {}, chunk "
            "{}, but schedule '{}' does not reduce them (R) after its "
            "last backward",
            line_.rank(), missing - reduced.begin(), schedule.name);
    });
}

void Pipeline::update_by(std::vector<Optimizer*> optimizers) {
    require(optimizers.size() == chunks_.size(), [&] {
        return fmt::format(
            "{} optimizers for {} chunks; one for each is expected",
            optimizers.size(), chunks_.size());
    });
    optimizers_ = std::move(optimizers);
}

Tensor Pipeline::run(const Loss& loss,
                     std::span<const MicroBatch> micro_batches) {
    const Schedule& schedule = plan_.schedule();
    const auto count = static_cast<std::size_t>(schedule.micro_batches);
    require(micro_batches.size() == count, [&] {
        return fmt::format(
            "schedule '{}' has {} micro-batches, but {} were given",
            schedule.name, count, micro_batches.size());
    });
    loss_ = &loss;
    micro_batches_ = micro_batches;
    total_loss_ = {};
    flights_ = std::vector<Flight>(count * chunks_.size());
    std::ranges::fill(used_up_, char{1});

    const int stage = line_.rank();
    const int length = static_cast<int>(schedule.of(stage).size());
    for (int position = 0; position < length; ++position)
        execute({stage, position});
    mail_.finish();
    return std::exchange(total_loss_, {});
}

// lesson: pipeline-executor
void Pipeline::execute(Place place) {
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
            return send(place, flight(place).y);
        case InstructionKind::recv_activation:
            return receive(place, flight(place).x_arrives);
        case InstructionKind::send_gradient:
            return send(place, flight(place).dx);
        case InstructionKind::recv_gradient:
            return receive(place, flight(place).dy_arrives);
        case InstructionKind::reduce_gradients:
            return reduce_gradients(at(place).chunk);
        case InstructionKind::optimizer_step:
            return update(place);
    }
}

void Pipeline::forward(Place place) {
    Flight& it = flight(place);
    const MicroBatch& batch = micro_batch(place);
    const Tensor x =
        is_first(place) ? batch.input : arriving(it.x, it.x_arrives);
    const PhaseScope phase(device_, Phase::forward, at(place).micro_batch);
    it.y = stash_.with_weights(place, chunk(place), [&] {
        return chunk(place).forward(x, it.saved);
    });
    if (is_last(place)) {
        const LossResult result =
            (*loss_)(device_, it.y, batch.target, batch.weight);
        it.y = {};
        it.dy = result.gradient;
        if (total_loss_)
            device_.add(total_loss_, result.loss);
        else
            total_loss_ = result.loss;
    } else if (Flight* next = neighbour(place, +1)) {
        next->x = std::exchange(it.y, {});
    }
}

void Pipeline::backward(Place place) {
    Flight& it = flight(place);
    const Tensor dy = arriving(it.dy, it.dy_arrives);
    begin_gradients();
    const PhaseScope phase(device_, Phase::backward, at(place).micro_batch);
    finish_backward(place, stash_.with_weights(place, chunk(place), [&] {
        return chunk(place).backward(dy, it.saved);
    }));
}

// lesson: end

void Pipeline::backward_input(Place place) {
    Flight& it = flight(place);
    const Tensor dy = arriving(it.dy, it.dy_arrives);
    const PhaseScope phase(device_, Phase::backward_input,
                           at(place).micro_batch);
    finish_backward(place, stash_.with_weights(place, chunk(place), [&] {
        return chunk(place).backward_input(dy, it.saved);
    }));
}

void Pipeline::backward_weight(Place place) {
    Flight& it = flight(place);
    begin_gradients();
    const PhaseScope phase(device_, Phase::backward_weight,
                           at(place).micro_batch);
    stash_.with_weights(place, chunk(place), [&] {
        chunk(place).backward_weight(it.saved);
        return true;
    });
}

/// What another part gives: from this device, or from the other that has
/// it.
Tensor Pipeline::arriving(Tensor& local, StageMail::Arrival& arrival) {
    return arrival.work ? mail_.wait(arrival) : std::exchange(local, {});
}

void Pipeline::finish_backward(Place place, const Tensor& dx) {
    if (is_first(place)) return;
    if (Flight* before = neighbour(place, -1))
        before->dy = dx;
    else
        flight(place).dx = dx;
}

void Pipeline::send(Place place, Tensor& tensor, SourceLine at) {
    mail_.send(std::exchange(tensor, {}), plan_.index().peer(place),
               line_of(place, at));
}

void Pipeline::receive(Place place, StageMail::Arrival& arrival,
                       SourceLine at) {
    const Shape shape = boundary_.shape(micro_batch(place));
    arrival = mail_.receive(device_.empty(shape, boundary_.dtype),
                            plan_.index().peer(place), line_of(place, at));
}

/// Of the file that the schedule was read from, where it was.
SourceLine Pipeline::line_of(Place place, SourceLine otherwise) const {
    const int line = at(place).line;
    if (line == 0) return otherwise;
    return SourceLine::of(plan_.schedule().file, line);
}

void Pipeline::reduce_gradients(int chunk) {
    std::vector<Work> works;
    const auto parameters =
        chunks_[static_cast<std::size_t>(chunk)]->parameters();
    if (replicas_)
        for (const Parameter* parameter : parameters)
            works.push_back(replicas_->all_reduce(parameter->gradient));
    for (Work& work : works)
        work.wait();
    for (const auto& [parameter, sharers] : ties_)
        if (std::ranges::find(parameters, parameter) != parameters.end())
            sharers->all_reduce(parameter->gradient).wait();
}

void Pipeline::update(Place place) {
    const auto chunk = static_cast<std::size_t>(at(place).chunk);
    if (optimizers_.empty()) return;
    stash_.before_update(place, *chunks_[chunk]);
    const PhaseScope phase(device_, Phase::update);
    optimizers_[chunk]->step();
    used_up_[chunk] = 1;
}

/// The first contribution after an update, or in a run, finds zeros. A
/// chunk may contribute to another's, so all are looked at.
void Pipeline::begin_gradients() {
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk)
        if (std::exchange(used_up_[chunk], char{0}))
            zero_gradients(*chunks_[chunk]);
}

Pipeline::Flight& Pipeline::flight(int chunk, int micro_batch) {
    return flights_[static_cast<std::size_t>(chunk) *
                        micro_batches_.size() +
                    static_cast<std::size_t>(micro_batch)];
}

Pipeline::Flight* Pipeline::neighbour(Place place, int step) {
    const Instruction& work = at(place);
    const InstructionKind kind =
        step > 0 ? InstructionKind::forward : InstructionKind::backward;
    const Place there =
        plan_.index().find(kind, part(place) + step, work.micro_batch);
    if (there.stage != place.stage) return nullptr;
    return &flight(at(there).chunk, work.micro_batch);
}

}  // namespace lockstep
