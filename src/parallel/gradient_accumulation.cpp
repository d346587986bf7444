#include "src/parallel/gradient_accumulation.hpp"

#include "src/core/require.hpp"

namespace lockstep {

// lesson: gradient-accumulation
Tensor accumulate_gradients(Device& device, Module& model, const Loss& loss,
                            std::span<const MicroBatch> micro_batches) {
    require(!micro_batches.empty(),
            "gradient accumulation needs at least one micro-batch");
    Tensor total;
    zero_gradients(model);
    for (int i = 0; const MicroBatch& batch : micro_batches) {
        Saved saved;
        LossResult result;
        {
            const PhaseScope phase(device, Phase::forward, i);
            const Tensor prediction = model.forward(batch.input, saved);
            result = loss(device, prediction, batch.target, batch.weight);
        }
        {
            const PhaseScope phase(device, Phase::backward, i);
            model.backward(result.gradient, saved);
        }
        if (total)
            device.add(total, result.loss);
        else
            total = result.loss;
        ++i;
    }
    return total;
}
// lesson: end

}  // namespace lockstep
