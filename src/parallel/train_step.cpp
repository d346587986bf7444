#include "src/parallel/train_step.hpp"

#include "src/parallel/placement.hpp"

namespace lockstep {

GradientSync::GradientSync(std::vector<Parameter*> parameters)
    : parameters_(std::move(parameters)) {
    for (Parameter* parameter : parameters_) {
        hooks_.emplace_back(parameter,
                            parameter->on_pass([this](Parameter& it) { passed(it); }));
        hooks_.emplace_back(parameter,
                            parameter->on_gradient([this](Parameter& it) { ready(it); }));
        hooks_.emplace_back(parameter, parameter->on_use([this](Parameter& it, Use use) {
            before_use(it, use);
        }));
        hooks_.emplace_back(parameter,
                            parameter->on_release(
                                [this](Parameter& it, Use use) { after_use(it, use); }));
    }
}

GradientSync::~GradientSync() {
    for (const auto& [parameter, hook] : hooks_)
        parameter->remove_hook(hook);
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
