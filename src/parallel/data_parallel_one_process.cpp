#include "src/parallel/data_parallel_one_process.hpp"

#include "src/core/require.hpp"
#include "src/parallel/scatter_along.hpp"

namespace lockstep {

namespace {

constexpr int kMain = 0;

/// Returns the shape of all ranks' predictions together, and how the ranks split it.
DealtTensor predictions_like(const Tensor& own, const Tensor& input,
                             const MainBatch& batch, SourceLine at) {
    const int along = batch.dimension;
    require(
        own.shape().dimensions() > along && own.shape()[along] == input.shape()[along],
        at,
        "one_process_step: the input has shape {} and the model's prediction {}; both "
        "must have the same extent along dimension {}, along which the ranks split them",
        input.shape(), own.shape(), along);
    return {with_extent(own.shape(), along, batch.shape[along]), along, own.dtype()};
}

// lesson: one-process
/// Runs one batch forward and backward; returns its loss on device 0.
Tensor run_batch(Device& device, Communicator& group, Module& model, const Loss& loss,
                 const MainBatch& batch, int index, SourceLine at) {
    Group values = group.group(at);
    for (const Parameter* parameter : model.parameters())
        values.broadcast(parameter->value, kMain, at);
    values.start(at).wait(at);

    const DealtTensor inputs{batch.shape, batch.dimension, batch.dtype};
    const Tensor input = scatter_along(device, group, inputs, batch.input, kMain, at);
    Saved saved;
    Tensor prediction;
    {
        const PhaseScope phase(device, Phase::forward, index);
        prediction = model.forward(input, saved, at);
    }
    const DealtTensor predictions = predictions_like(prediction, input, batch, at);
    const Tensor all = gather_along(device, group, predictions, prediction, kMain, at);

    LossResult result;
    if (group.rank() == kMain) result = loss(device, all, batch.target, batch.weight, at);
    const Tensor gradient =
        scatter_along(device, group, predictions, result.gradient, kMain, at);
    {
        const PhaseScope phase(device, Phase::backward, index);
        model.backward(gradient, saved, at);
    }
    for (const Parameter* parameter : model.parameters())
        group.reduce(parameter->gradient, kMain, Reduction::sum, at).wait(at);
    return result.loss;
}
// lesson: end

}  // namespace

Tensor one_process_step(Device& device, Communicator& group, Module& model,
                        const Loss& loss, std::span<const MainBatch> batches,
                        Optimizer& optimizer, SourceLine at) {
    require(!batches.empty(), at, "one_process_step needs at least one batch");
    const bool is_main = group.rank() == kMain;
    Tensor total;
    for (std::size_t i = 0; i < batches.size(); ++i) {
        const MainBatch& batch = batches[i];
        require(batch.dimension >= 0 && batch.dimension < batch.shape.dimensions(), at,
                "one_process_step: a batch of shape {} cannot be scattered along "
                "dimension {}; 0 to {} is expected",
                batch.shape, batch.dimension, batch.shape.dimensions() - 1);
        require(!is_main || batch.input.shape() == batch.shape, at,
                "one_process_step: the input has shape {}, but the batch names {}",
                batch.input.shape(), batch.shape);
        // Only device 0 keeps its gradients; other devices have sent theirs to device 0.
        if (i == 0 || !is_main) zero_gradients(model);
        const Tensor share =
            run_batch(device, group, model, loss, batch, static_cast<int>(i), at);
        if (total)
            device.add(total, share, 1, at);
        else
            total = share;
    }
    const PhaseScope phase(device, Phase::update);
    if (is_main) optimizer.step();
    return total;
}

}  // namespace lockstep
