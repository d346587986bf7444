#include "sim/check/layouts.hpp"

#include <algorithm>

#include "sim/check/layout_join.hpp"
#include "sim/check/layout_text.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

using Kind = Layout::Kind;

Layouts::Layouts(const Engine& engine)
    : Tracker(engine.ranks().size()),
      engine_(engine),
      steps_with_(engine.ranks().size()) {}

Layout Layouts::of(int rank, const Tensor& tensor) const {
    const auto* const range = known(rank).whole(tensor);
    if (range == nullptr) return {};
    Layout layout = range->fact;
    layout.identity =
        mixed(layout.identity,
              static_cast<std::uint64_t>(tensor.offset_bytes() - range->start));
    return layout;
}

void Layouts::executing(int rank, const DeviceOperation& operation) {
    check_use(rank, operation);
    Known& memory = known(rank);
    switch (operation.derivation.kind) {
        case Derivation::Kind::fill: {
            Layout layout;
            layout.kind = Kind::constant;
            layout.identity =
                mixed(7, static_cast<std::uint64_t>(operation.derivation.factor * 65536));
            memory.set(*operation.writes[0], layout);
            return;
        }
        case Derivation::Kind::copy:
            return copy_facts(rank, *operation.writes[0], rank, *operation.reads[0]);
        case Derivation::Kind::scale:
            return scale(rank, operation);
        case Derivation::Kind::update:
            return update(rank, operation);
        case Derivation::Kind::random:
            return forget_results(rank, operation);
        case Derivation::Kind::part:
        case Derivation::Kind::loss_gradient:
        case Derivation::Kind::function:
            break;
    }
    const bool nothing_known =
        std::all_of(operation.reads.begin(), operation.reads.end(),
                    [&](const Tensor* read) { return memory.knows_nothing_of(*read); });
    Layout result = nothing_known ? Layout{} : result_of(rank, operation);
    for (const Tensor* written : operation.writes) {
        if (result.kind == Kind::unknown) {
            memory.forget(*written);
            continue;
        }
        memory.set(*written, result);
        result.identity = mixed(result.identity, 1);
    }
}

/// Copies pass it on, and scaling may repair it.
void Layouts::check_use(int rank, const DeviceOperation& operation) const {
    const Derivation::Kind kind = operation.derivation.kind;
    if (kind == Derivation::Kind::copy || kind == Derivation::Kind::scale) return;
    for (const Tensor* read : operation.reads)
        for (const auto& range : known(rank).read(*read))
            if (range.fact.kind == Kind::twice)
                throw FaultError(explain_twice(range.fact, operation.at, operation.name));
}

void Layouts::scale(int rank, const DeviceOperation& operation) {
    const Tensor& tensor = *operation.writes[0];
    const double factor = operation.derivation.factor;
    if (factor == 1 || known(rank).knows_nothing_of(tensor)) return;
    Ranges ranges = known(rank).read(tensor);
    for (auto& range : ranges) {
        Layout& layout = range.fact;
        layout.identity =
            mixed(layout.identity, static_cast<std::uint64_t>(factor * 4294967296.0));
        layout.multiplier *= factor;
        if (layout.kind == Kind::mixed) layout.kind = Kind::unknown;
        if (layout.kind != Kind::twice) continue;
        // The mean of replicas is what they are.
        const bool mean = is_one(factor * layout.second->team->size());
        layout = mean && is_reduced(*layout.before) ? Layout(*layout.before) : Layout();
    }
    std::erase_if(ranges,
                  [](const auto& range) { return range.fact.kind == Kind::unknown; });
    known(rank).put(tensor, std::move(ranges));
}

Layout Layouts::result_of(int rank, const DeviceOperation& operation) const {
    LayoutJoin join(operation);
    for (const Tensor* read : operation.reads)
        join.add(*read, known(rank).read(*read));
    return join.result();
}

void Layouts::update(int rank, const DeviceOperation& operation) {
    const Tensor& parameter = *operation.reads[0];
    const Tensor& gradient = *operation.reads[1];
    const Layout was = of(rank, parameter);
    const Layout step = of(rank, gradient);
    const auto me = static_cast<std::size_t>(rank);
    if (is_reduced(step) && std::find(steps_with_[me].begin(), steps_with_[me].end(),
                                      step.team()) == steps_with_[me].end())
        steps_with_[me].push_back(step.team());
    forget_results(rank, operation);
    if (was.kind == Kind::drifted) {
        known(rank).set(parameter, was);
        return;
    }
    if (was.kind != Kind::replicated || step.kind != Kind::varying ||
        !same_ranks(*was.team(), *step.team()))
        return;
    Drift& drift = drifts_[was.identity];
    if (drift.ranks.empty() || rank < drift.ranks.front()) {
        drift.at = operation.at;
        drift.operation = operation.name;
        drift.parameter = was.origin;
        drift.gradient = step.origin;
    }
    // A rank may have two tensors of one broadcast.
    const auto place = std::lower_bound(drift.ranks.begin(), drift.ranks.end(), rank);
    if (place == drift.ranks.end() || *place != rank) drift.ranks.insert(place, rank);
    Layout drifted = was;
    drifted.kind = Kind::drifted;
    drifted.changed = operation.at;
    known(rank).set(parameter, drifted);
}

/// A gradient that was forgotten among others that were reduced; who reduces none, or
/// brings the parameters together now and then, does what it wants.
void Layouts::run_ended() {
    for (const auto& [identity, drift] : drifts_) {
        const Team& team = *drift.gradient->team;
        const bool reduces_others =
            std::all_of(drift.ranks.begin(), drift.ranks.end(), [&](int rank) {
                const auto& teams = steps_with_[rank];
                return std::any_of(teams.begin(), teams.end(), [&](const Team* other) {
                    return same_ranks(*other, team);
                });
            });
        if (drift.ranks.size() > 1 && reduces_others)
            throw FaultError(explain_drift(drift));
    }
}

}  // namespace lockstep::sim
