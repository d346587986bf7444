#include "src/parallel/fully_sharded.hpp"

#include <algorithm>
#include <utility>

#include "src/core/require.hpp"
#include "src/nn/wrapper.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

/// A module of the model. Gathers and releases its units around forward and backward.
class FullySharded::Layer : public Wrapper {
  public:
    Layer(FullySharded& sync, std::size_t place, std::unique_ptr<Module> module)
        : Wrapper("FullySharded", std::move(module)), sync_(sync), place_(place) {}

    std::size_t place() const { return place_; }
    const std::vector<Unit*>& units() const { return units_; }
    void need(Unit& unit) {
        if (std::ranges::find(units_, &unit) == units_.end()) units_.push_back(&unit);
    }

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override {
        const bool is_last = place_ + 1 == sync_.layers_.size();
        const bool keep = is_last || !sync_.options_.reshard_after_forward;
        return around(Direction::forward, keep,
                      [&] { return Wrapper::do_forward(x, saved); });
    }
    Tensor do_infer(const Tensor& x, SourceLine at) override {
        return around(Direction::forward, false,
                      [&] { return Wrapper::do_infer(x, at); });
    }
    Tensor do_backward(const Tensor& dy, Saved& saved) override {
        return around(Direction::backward, false,
                      [&] { return Wrapper::do_backward(dy, saved); });
    }
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override {
        return around(Direction::backward, false,
                      [&] { return Wrapper::do_backward_input(dy, saved); });
    }

    template <typename Work>
    Tensor around(Direction direction, bool keep, Work&& work) {
        const std::vector<Unit*> opened = units_;  // work() may add units to units_
        sync_.open(*this, direction);
        Tensor result = work();
        sync_.close(opened, keep);
        return result;
    }

    FullySharded& sync_;
    std::size_t place_;
    std::vector<Unit*> units_;
};

FullySharded::FullySharded(Device& device, Communicator& line, Sequential& model,
                           const FullyShardedOptions& options)
    : GradientSync(model.parameters()), device_(device), line_(line), options_(options) {
    require(options.prefetch >= 0, "FullySharded: prefetch is {}; 0 or more is expected",
            options.prefetch);
    require_partial("FullySharded", line, parameters());
    const ShardedUnit::Options how{options.shard_by, options.reduce_in,
                                   options.on_host ? &device.host() : nullptr};
    for (std::size_t place = 0; place < model.size(); ++place) {
        const std::vector<Parameter*> own = model[place].parameters();
        model.replace(place, [&](std::unique_ptr<Module> module) {
            auto layer = std::make_unique<Layer>(*this, place, std::move(module));
            layers_.push_back(layer.get());
            return layer;
        });
        if (own.empty()) continue;
        units_.push_back(
            std::make_unique<Unit>(Unit{ShardedUnit(device, line, own, how)}));
        layers_.back()->need(*units_.back());
        for (const Parameter* parameter : own)
            unit_of_[parameter] = units_.back().get();
    }
    require_shards("FullySharded", line, shards(), options.on_host);
}

FullySharded::~FullySharded() = default;

// lesson: fully-sharded
void FullySharded::open(Layer& layer, Direction direction) {
    for (Unit* unit : layer.units())
        unit->sharded.gather();
    prefetch(layer, direction);
    for (Unit* unit : layer.units())
        unit->sharded.open();
    current_ = &layer;
}

/// Gathers the units of the next layers, the nearest layer first. If shards live on the
/// host, copies the units of the layer after these to the device.
void FullySharded::prefetch(const Layer& layer, Direction direction) {
    for (int ahead = 1; ahead <= options_.prefetch + 1; ++ahead) {
        const auto next = static_cast<std::ptrdiff_t>(layer.place()) +
                          ahead * static_cast<std::ptrdiff_t>(direction);
        if (next < 0 || next >= static_cast<std::ptrdiff_t>(layers_.size())) return;
        for (Unit* unit : layers_[static_cast<std::size_t>(next)]->units()) {
            if (ahead <= options_.prefetch)
                unit->sharded.gather();
            else
                unit->sharded.fetch();
        }
    }
}

void FullySharded::close(const std::vector<Unit*>& units, bool keep) {
    current_ = nullptr;
    for (Unit* unit : units)
        unit->sharded.close(keep);
}

void FullySharded::before_use(Parameter& parameter, Use use) {
    Unit& unit = unit_of(parameter);
    if (reads_value(use)) unit.sharded.open();
    if (!adds_gradient(use)) return;
    // The previous pass is over; it did not use all parameters of the unit.
    if (std::ranges::find(unit.passed, &parameter) != unit.passed.end()) reduce(unit);
    unit.sharded.make_gradients();
}

void FullySharded::after_use(Parameter& parameter, Use use) {
    if (!reads_value(use)) return;
    Unit& unit = unit_of(parameter);
    unit.sharded.close(false);
    if (current_) current_->need(unit);
}

void FullySharded::passed(Parameter& parameter) {
    Unit& unit = unit_of(parameter);
    unit.passed.push_back(&parameter);
    if (unit.passed.size() == unit.sharded.parameters().size()) reduce(unit);
}

void FullySharded::reduce(Unit& unit) {
    in_turn_.before(unit.sharded.sum());  // releases the previous sum's gradients
    unit.sharded.make_gradients();        // zeros if no gradient was added
    unit.sharded.reduce(std::exchange(unit.has_terms, true));
    unit.passed.clear();
}
// lesson: end

void FullySharded::begin() {
    for (const auto& unit : units_) {
        unit->has_terms = false;
        unit->passed.clear();
    }
    for (Parameter* shard : shards())
        shard->complete = false;
}

void FullySharded::finish() {
    for (const auto& unit : units_)
        if (!unit->has_terms || unit->sharded.has_gradients()) reduce(*unit);
    in_turn_.finish();
    for (const auto& unit : units_)
        unit->sharded.sum().settle();
    complete_gradients(shards(), &line_);
    for (Parameter* shard : shards())
        shard->set_complete();
}

void FullySharded::update(Optimizer& optimizer) {
    require_shards_of("FullySharded, where a rank updates shards()", optimizer);
    send_values();
    GradientSync::update(optimizer);
}

/// Releases all old values, even kept ones: the next use gathers new values.
void FullySharded::send_values() {
    for (const auto& unit : units_)
        unit->sharded.drop();
}

std::vector<Parameter*> FullySharded::shards() const {
    std::vector<Parameter*> all;
    for (const auto& unit : units_)
        for (Parameter* shard : unit->sharded.shards())
            all.push_back(shard);
    return all;
}

}  // namespace lockstep
