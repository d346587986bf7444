#include "src/parallel/gradient_accumulation.hpp"

#include "src/core/require.hpp"

namespace lockstep {

// lesson: gradient-accumulation
Tensor forward_backward(Device& device, Module& model, const Loss& loss,
                        const MicroBatch& batch, int index, SourceLine at) {
    Saved saved;
    saved.set_loss_weight(batch.weight);
    LossResult result;
    {
        const PhaseScope phase(device, Phase::forward, index);
        const Tensor prediction = model.forward(batch.input, saved, at);
        result = loss(device, prediction, batch.target, batch.weight);
        for (const Tensor& term : saved.take_losses())
            device.add(result.loss, term);
    }
    const PhaseScope phase(device, Phase::backward, index);
    model.backward(result.gradient, saved, at);
    return result.loss;
}

Tensor accumulate_gradients(Device& device, Module& model, const Loss& loss,
                            std::span<const MicroBatch> micro_batches, SourceLine at) {
    require(!micro_batches.empty(), at,
            "gradient accumulation needs at least one micro-batch");
    zero_gradients(model, static_cast<int>(micro_batches.size()));
    Tensor total;
    for (int i = 0; const MicroBatch& batch : micro_batches) {
        const Tensor share = forward_backward(device, model, loss, batch, i++, at);
        if (total)
            device.add(total, share);
        else
            total = share;
    }
    return total;
}
// lesson: end

}  // namespace lockstep
