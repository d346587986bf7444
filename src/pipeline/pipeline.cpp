#include "src/pipeline/pipeline.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

/// The plan, where line and chunks are as many as it has.
const PipelinePlan& fitting(const PipelinePlan& plan,
                            const Communicator& line,
                            const std::vector<Module*>& chunks,
                            SourceLine at) {
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
            "chunk {} of stage {} is null; a module is expected",
            none - chunks.begin(), line.rank());
    return plan;
}

}  // namespace

Pipeline::Pipeline(Device& device, Communicator& line,
                   const PipelinePlan& plan, std::vector<Module*> chunks,
                   PartBoundary boundary, SourceLine at)
    : device_(device),
      line_(line),
      plan_(fitting(plan, line, chunks, at)),
      chunks_(std::move(chunks)),
      boundary_(std::move(boundary)),
      mail_(line),
      stash_(device, plan, line.rank()),
      used_up_(chunks_.size(), 1) {
    require(static_cast<bool>(boundary_.shape), at,
            "a pipeline was given no function that tells the shape of "
            "what goes from part to part");
    const Schedule& schedule = plan.schedule();
    for (int chunk = 0; chunk < schedule.chunks; ++chunk)
        if (schedule.part(line.rank(), chunk) == 0)
            chunks_[chunk]->set_input_gradient(false);
}

Tensor Pipeline::run(const Loss& loss,
                     std::span<const MicroBatch> micro_batches,
                     SourceLine at) {
    const Schedule& schedule = plan_.schedule();
    require_batches(micro_batches, at);
    require_shared_gradients();
    loss_ = &loss;
    micro_batches_ = micro_batches;
    at_ = at;
    total_loss_ = {};
    flights_ = std::vector<Flight>(micro_batches.size() * chunks_.size());
    std::ranges::fill(used_up_, char{1});

    const int stage = line_.rank();
    const int length = static_cast<int>(schedule.of(stage).size());
    for (int position = 0; position < length; ++position)
        execute({stage, position});
    mail_.finish();
    return std::exchange(total_loss_, {});
}

/// As many as the schedule's, and with inputs where they are read.
void Pipeline::require_batches(std::span<const MicroBatch> micro_batches,
                               SourceLine at) const {
    const Schedule& schedule = plan_.schedule();
    const auto count = static_cast<std::size_t>(schedule.micro_batches);
    require(micro_batches.size() == count, at,
            "schedule '{}' has {} micro-batches, but {} were given",
            schedule.name, count, micro_batches.size());
    const auto& parts = schedule.parts[line_.rank()];
    if (std::ranges::find(parts, 0) == parts.end()) return;
    const auto none = std::ranges::find_if_not(
        micro_batches, [](const MicroBatch& batch) {
            return static_cast<bool>(batch.input);
        });
    require(none == micro_batches.end(), at,
            "stage {} reads the inputs, but that of micro-batch {} is none",
            line_.rank(), none - micro_batches.begin());
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
    const Tensor y = stash_.with_weights(place, chunk(place), [&] {
        return chunk(place).forward(x, it.saved);
    });
    if (is_last(place))
        add_loss(place, y);
    else
        finish_forward(place, y);
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

void Pipeline::add_loss(Place place, const Tensor& y) {
    const MicroBatch& batch = micro_batch(place);
    const LossResult result =
        (*loss_)(device_, y, batch.target, batch.weight, at_);
    require(result.loss && result.gradient, at_,
            "the loss of micro-batch {} came without a {}",
            at(place).micro_batch, result.loss ? "gradient" : "value");
    flight(place).dy = result.gradient;
    if (total_loss_)
        device_.add(total_loss_, result.loss);
    else
        total_loss_ = result.loss;
}

void Pipeline::finish_forward(Place place, const Tensor& y) {
    const Shape expected = boundary_.shape(micro_batch(place));
    require(y.shape() == expected && y.dtype() == boundary_.dtype, at_,
            [&] {
                return fmt::format(
                    "part {} of the model, on stage {}, made {} {} of "
                    "micro-batch {}, but what goes from part to part is "
                    "said to be {} {}",
                    part(place), place.stage, y.shape(), y.dtype(),
                    at(place).micro_batch, expected.text(),
                    name_of(boundary_.dtype));
            });
    if (Flight* next = neighbour(place, +1))
        next->x = y;
    else
        flight(place).y = y;
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
