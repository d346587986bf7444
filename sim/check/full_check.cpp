#include "sim/check/full_check.hpp"

#include "sim/check/gradient_use.hpp"
#include "sim/check/in_flight.hpp"
#include "sim/check/layouts.hpp"
#include "sim/check/order_graph.hpp"
#include "sim/check/own_gradients.hpp"
#include "sim/check/reference.hpp"
#include "sim/check/replicas.hpp"
#include "sim/check/shards.hpp"
#include "sim/check/streams.hpp"
#include "sim/check/versions.hpp"
#include "sim/check/weights.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

void FullCheck::watch(Engine& engine) {
    engine_ = &engine;
    const auto ranks = static_cast<std::size_t>(engine.options().ranks);
    const bool several = ranks > 1;
    const bool numbers = engine.options().numbers;
    const auto add = [&](std::unique_ptr<Watcher> watcher) {
        watchers_.push_back(std::move(watcher));
    };
    auto layouts = std::make_unique<Layouts>(engine);

    add(std::make_unique<InFlight>(engine));
    add(std::make_unique<OrderGraph>(engine));
    add(std::make_unique<VersionWatcher>(engine.options().ranks));
    add(std::make_unique<WeightWatcher>(engine));
    add(std::make_unique<GradientUseWatcher>(ranks));
    // What asks for the layouts comes before them: it wants those from before the call.
    if (several && numbers) add(std::make_unique<ReplicaWatcher>(engine, *layouts));
    if (several && numbers) add(std::make_unique<OwnGradientWatcher>(engine, *layouts));
    if (several) add(std::make_unique<StreamWatcher>(engine, *layouts));
    add(std::move(layouts));
    add(std::make_unique<ShardWatcher>(ranks));
    if (numbers && engine.options().reference)
        add(std::make_unique<ReferenceWatcher>(engine, run_reference(engine.options())));
}

void FullCheck::note_mistake(int rank) const {
    engine_->note_mistake(rank, std::current_exception());
}

}  // namespace lockstep::sim
