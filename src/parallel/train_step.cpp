#include "src/parallel/train_step.hpp"

#include <algorithm>

#include "src/core/call_scope.hpp"
#include "src/core/require.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

GradientSync::GradientSync(std::vector<Parameter*> parameters)
    : parameters_(std::move(parameters)) {
    for (Parameter* parameter : parameters_) {
        hooks_.emplace_back(
            parameter, parameter->on_pass([this](Parameter& used) { passed(used); }));
        hooks_.emplace_back(
            parameter, parameter->on_gradient([this](Parameter& used) { ready(used); }));
        hooks_.emplace_back(
            parameter, parameter->on_use(
                           [this](Parameter& used, Use use) { before_use(used, use); }));
        hooks_.emplace_back(
            parameter, parameter->on_release(
                           [this](Parameter& used, Use use) { after_use(used, use); }));
    }
}

GradientSync::~GradientSync() {
    for (const auto& [parameter, hook] : hooks_)
        parameter->remove_hook(hook);
}

void GradientSync::update(Optimizer& optimizer) {
    if (!shares_optimizer_) return optimizer.step();
    for (const Parameter* parameter : shards())
        optimizer.step(*parameter);
}

void GradientSync::require_shards_of(const char* who, const Optimizer& optimizer) const {
    if (!shares_optimizer_) optimizer.require_of(who, shards());
}

void CombinedSync::add(std::unique_ptr<GradientSync> sync) {
    require(sync != nullptr, "CombinedSync: a strategy is expected, not null");
    for (const Parameter* parameter : sync->parameters())
        require(
            !std::ranges::count(parameters_, parameter),
            "CombinedSync: two strategies have {}; its gradient would be summed twice",
            parameter->name());
    sync->shares_optimizer_ = true;
    parameters_.insert(parameters_.end(), sync->parameters().begin(),
                       sync->parameters().end());
    syncs_.push_back(std::move(sync));
}

std::vector<Parameter*> CombinedSync::shards() const {
    std::vector<Parameter*> all;
    for (const auto& sync : syncs_)
        for (Parameter* shard : sync->shards())
            all.push_back(shard);
    return all;
}

void CombinedSync::begin() {
    for (const auto& sync : syncs_)
        sync->begin();
}

void CombinedSync::finish() {
    for (const auto& sync : syncs_)
        sync->finish();
}

void CombinedSync::update(Optimizer& optimizer) {
    require_shards_of("strategies that are combined", optimizer);
    for (const auto& sync : syncs_)
        sync->update(optimizer);
}

void CombinedSync::wait_for_values() {
    for (const auto& sync : syncs_)
        sync->wait_for_values();
}

void CombinedSync::send_values() {
    for (const auto& sync : syncs_)
        sync->send_values();
}

const char* CombinedSync::unsaved() const {
    for (const auto& sync : syncs_)
        if (const char* what = sync->unsaved()) return what;
    return nullptr;
}

void AllReduceSync::finish() {
    complete_gradients(parameters());
}

// lesson: train-step
Tensor train_step(Device& device, Module& model, const Loss& loss,
                  std::span<const MicroBatch> micro_batches, GradientSync& sync,
                  Optimizer& optimizer, SourceLine at) {
    const CallScope call(at);
    sync.begin();
    Tensor share = accumulate_gradients(device, model, loss, micro_batches, at);
    sync.finish();
    const PhaseScope phase(device, Phase::update);
    sync.update(optimizer);
    return share;
}
// lesson: end

}  // namespace lockstep
