#include "src/pipeline/plain_pipeline.hpp"

#include <algorithm>
#include <utility>

#include "src/core/require.hpp"

namespace lockstep {

using enum InstructionKind;

namespace {

/// Returns whether each stage s holds only part s, and has R and U only at its end.
bool is_plain(const Schedule& schedule) {
    bool plain = schedule.chunks == 1 && schedule.queues == MessageQueues::one;
    for (int stage = 0; stage < schedule.stages; ++stage)
        plain = plain && schedule.part(stage, 0) == stage &&
                std::ranges::is_partitioned(schedule.of_stage(stage), has_micro_batch,
                                            &Instruction::kind);
    return plain;
}

}  // namespace

PlainPipeline::PlainPipeline(Device& device, Communicator& line, const PipelinePlan& plan,
                             Module& stage, PartBoundary boundary)
    : device_(device),
      line_(line),
      schedule_(plan.schedule()),
      stage_(stage),
      boundary_(std::move(boundary)) {
    require(is_plain(schedule_) && schedule_.stages == line.size(),
            "{} has {} stages; {} are expected, with part s on stage s, one queue of "
            "messages, and R and U only at the end",
            schedule_.name, schedule_.stages, line.size());
    stage.set_input_gradient(!is_first());
}

Tensor PlainPipeline::run(const Loss& loss, std::span<const MicroBatch> micro_batches) {
    require(schedule_.micro_batches == std::ssize(micro_batches),
            "{} has {} micro-batches; {} were given", schedule_.name,
            schedule_.micro_batches, micro_batches.size());
    zero_gradients(stage_, schedule_.micro_batches);
    flights_ = std::vector<Flight>(micro_batches.size());
    total_ = {};
    for (const Place place : schedule_.places(line_.rank())) {
        const Instruction& next = schedule_.at(place);
        const Positions together = schedule_.together(place);
        if (is_computation(next.kind))
            compute(next, loss, micro_batches[next.micro_batch]);
        if (is_message(next.kind) && place.position == together.first)
            exchange(together, micro_batches);
    }
    return total_;
}

void PlainPipeline::compute(const Instruction& work, const Loss& loss,
                            const MicroBatch& batch) {
    Flight& flight = flights_[work.micro_batch];
    if (work.kind == InstructionKind::forward) return forward(flight, loss, batch);
    if (work.kind == backward) flight.dx = stage_.backward(flight.dy, flight.saved);
    if (work.kind == backward_input)
        flight.dx = stage_.backward_input(flight.dy, flight.saved);
    if (work.kind == backward_weight) stage_.backward_weight(flight.saved);
    // After the last use of what forward saved, only dx is kept, to be sent.
    if (work.kind != backward_input) flight = {.dx = flight.dx};
}

void PlainPipeline::forward(Flight& flight, const Loss& loss, const MicroBatch& batch) {
    flight.saved.set_loss_weight(batch.weight);
    flight.y = stage_.forward(is_first() ? batch.input : flight.x, flight.saved);
    for (const Tensor& term : flight.saved.take_losses())
        add_to_total(term);
    if (!is_last()) return;
    const LossResult result = loss(device_, flight.y, batch.target, batch.weight);
    add_to_total(result.loss);
    flight.dy = result.gradient;
}

void PlainPipeline::add_to_total(const Tensor& loss) {
    if (total_)
        device_.add(total_, loss);
    else
        total_ = loss;
}

/// Runs messages that begin together, and releases what was sent.
void PlainPipeline::exchange(Positions together,
                             std::span<const MicroBatch> micro_batches) {
    const int before = line_.rank() - 1, behind = line_.rank() + 1;
    std::vector<Tensor> sent;
    Group messages = line_.group();
    for (int position = together.first; position < together.last; ++position) {
        const Instruction& message = schedule_.at({line_.rank(), position});
        Flight& flight = flights_[message.micro_batch];
        const auto arriving = [&] {
            return device_.empty(boundary_.shape(micro_batches[message.micro_batch]),
                                 boundary_.dtype);
        };
        if (is_send(message.kind)) {
            const bool is_forward = message.kind == send_activation;
            sent.push_back(std::exchange(is_forward ? flight.y : flight.dx, {}));
            messages.send(sent.back(), is_forward ? behind : before);
        } else if (message.kind == recv_activation) {
            messages.recv(flight.x = arriving(), before);
        } else {
            messages.recv(flight.dy = arriving(), behind);
        }
    }
    messages.start().wait();
}

}  // namespace lockstep
