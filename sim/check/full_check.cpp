#include "sim/check/full_check.hpp"

#include "sim/check/order_graph.hpp"
#include "sim/check/in_flight.hpp"
#include "sim/check/gradient_use.hpp"
#include "sim/check/layouts.hpp"
#include "sim/check/reference.hpp"
#include "sim/check/own_gradients.hpp"
#include "sim/check/replicas.hpp"
#include "sim/check/shards.hpp"
#include "sim/check/streams.hpp"
#include "sim/check/versions.hpp"
#include "sim/check/weights.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

void FullCheck::watch(Engine& engine) {
    engine_ = &engine;
    watchers_.push_back(std::make_unique<InFlight>(engine));
    watchers_.push_back(std::make_unique<OrderGraph>(engine));
    const int ranks = engine.options().ranks;
    watchers_.push_back(std::make_unique<VersionWatcher>(ranks));
    const auto all = static_cast<std::size_t>(ranks);
    watchers_.push_back(std::make_unique<WeightWatcher>(engine));
    watchers_.push_back(std::make_unique<GradientUseWatcher>(all));
    auto layouts = std::make_unique<Layouts>(engine);
    if (engine.options().numbers && ranks > 1) {
        watchers_.push_back(std::make_unique<ReplicaWatcher>(engine, *layouts));
        watchers_.push_back(std::make_unique<OwnGradientWatcher>(engine, *layouts));
    }
    if (ranks > 1) watchers_.push_back(std::make_unique<StreamWatcher>(engine, *layouts));
    watchers_.push_back(std::move(layouts));
    watchers_.push_back(std::make_unique<ShardWatcher>(all));
    if (engine.options().reference && engine.options().numbers)
        watchers_.push_back(std::make_unique<ReferenceWatcher>(
            engine, run_reference(engine.options())));
}

void FullCheck::note_mistake(int rank) const {
    engine_->note_mistake(rank, std::current_exception());
}

}  // namespace lockstep::sim
