#include "src/parallel/train_step.hpp"

#include "src/parallel/placement.hpp"

namespace lockstep {

GradientSync::GradientSync(std::vector<Parameter*> parameters)
    : parameters_(std::move(parameters)) {
    for (Parameter* parameter : parameters_)
        hooks_.push_back(
            parameter->on_gradient([this](Parameter& complete) { ready(complete); }));
}

GradientSync::~GradientSync() {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        parameters_[i]->remove_hook(hooks_[i]);
}

void AllReduceSync::finish() {
    complete_gradients(parameters());
}

// lesson: train-step
Tensor train_step(Device& device, Module& model, const Loss& loss,
                  std::span<const MicroBatch> micro_batches, GradientSync& sync,
                  Optimizer& optimizer, SourceLine at) {
    sync.begin();
    Tensor share = accumulate_gradients(device, model, loss, micro_batches, at);
    sync.finish();
    const PhaseScope phase(device, Phase::update);
    sync.update(optimizer);
    return share;
}
// lesson: end

}  // namespace lockstep
