#include "src/pipeline/plain_pipeline.hpp"

#include "src/core/require.hpp"

namespace lockstep {

namespace {

using enum InstructionKind;

/// A micro-batch on this stage, between its forward and its backward.
struct Flight {
    Saved saved{};
    Tensor x{}, y{}, dy{}, dx{};
};

}  // namespace

Tensor run_plainly(Device& device, Communicator& line, const Schedule& schedule,
                   Module& stage, const PartBoundary& boundary, const Loss& loss,
                   std::span<const MicroBatch> micro_batches) {
    require(
        schedule.chunks == 1 && schedule.stages == line.size() &&
            schedule.micro_batches == std::ssize(micro_batches),
        "{} has {} stages of {} chunks and {} micro-batches; one chunk, {} stages and "
        "{} micro-batches are expected",
        schedule.name, schedule.stages, schedule.chunks, schedule.micro_batches,
        line.size(), micro_batches.size());
    const int here = line.rank();
    const bool is_first = here == 0, is_last = here == line.size() - 1;
    std::vector<Flight> flights(micro_batches.size());
    Tensor total;
    zero_gradients(stage);
    stage.set_input_gradient(!is_first);

    const auto post = [&](Group& group, const Instruction& message) {
        Flight& it = flights[message.micro_batch];
        const auto arriving = [&] {
            return device.empty(boundary.shape(micro_batches[message.micro_batch]),
                                boundary.dtype);
        };
        if (message.kind == send_activation) group.send(it.y, here + 1);
        if (message.kind == recv_activation) group.recv(it.x = arriving(), here - 1);
        if (message.kind == send_gradient) group.send(it.dx, here - 1);
        if (message.kind == recv_gradient) group.recv(it.dy = arriving(), here + 1);
    };
    const auto compute = [&](const Instruction& work) {
        Flight& it = flights[work.micro_batch];
        const MicroBatch& batch = micro_batches[work.micro_batch];
        if (work.kind == forward) {
            it.y = stage.forward(is_first ? batch.input : it.x, it.saved);
            if (!is_last) return;
            const LossResult result = loss(device, it.y, batch.target, batch.weight);
            it.dy = result.gradient;
            if (total) device.add(total, result.loss);
            if (!total) total = result.loss;
        }
        if (work.kind == backward) it.dx = stage.backward(it.dy, it.saved);
        if (work.kind == backward_input) it.dx = stage.backward_input(it.dy, it.saved);
        if (work.kind == backward_weight) stage.backward_weight(it.saved);
        // Of a micro-batch whose backward is done only dx is still to be sent.
        if (work.kind == backward || work.kind == backward_weight) it = {.dx = it.dx};
    };

    for (const Place place : schedule.places(here)) {
        const Instruction& next = schedule.at(place);
        const Positions together = schedule.together(place);
        if (is_computation(next.kind)) compute(next);
        if (!is_message(next.kind) || place.position != together.first) continue;
        Group messages = line.group();
        for (int i = together.first; i < together.last; ++i)
            post(messages, schedule.at({here, i}));
        messages.start().wait();
    }
    return total;
}

}  // namespace lockstep
