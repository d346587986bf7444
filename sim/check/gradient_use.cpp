#include <fmt/format.h>

#include "sim/check/check.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/shadow.hpp"
#include "sim/check/tensors.hpp"
#include "sim/engine.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::sim {

namespace {

/// A use of a gradient since it was last set.
struct GradientUse {
    const char* update;
    SourceLine used_at;
    const char* added_by = nullptr;  ///< the backward that has added to the gradient
    SourceLine added_at;
};

/// Finds gradients that were not set to zero (F27): an update uses a gradient, backward
/// adds to it, and an update uses it again. Only additions by backward count, because a
/// program may make sums of its own, such as momentum. Scaled gradients are not followed.
class GradientUseWatcher final : public Tracker<GradientUse> {
  public:
    using Tracker::Tracker;

    void executing(int rank, const DeviceOperation& operation) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;

  private:
    void use(int rank, const DeviceOperation& operation);
};

Diagnosis explain(int rank, const GradientUse& before, const DeviceOperation& update) {
    Diagnosis diagnosis = diagnosis_of("F27");
    diagnosis.sentence = fmt::format(
        "rank {}: {} at {} uses a gradient that {} at {} has already used; {} at {} has "
        "added to it since then, but nothing set it to zero, so it still contains the "
        "previous step",
        rank, update.name, update.at.text(), before.update, before.used_at.text(),
        before.added_by, before.added_at.text());
    diagnosis.parties = {
        party({rank}, before.added_by, before.added_at, "adds to the gradient"),
        party({rank}, update.name, update.at, "uses it again")};
    return diagnosis;
}

void GradientUseWatcher::executing(int rank, const DeviceOperation& operation) {
    const Derivation& derivation = operation.derivation;
    if (is_update(operation)) {
        forget_results(rank, operation);
        return use(rank, operation);
    }
    const bool keeps =
        derivation.kind == Derivation::Kind::scale && derivation.factor == 1;
    if (keeps) return;
    if (!is_backward_sum(operation)) return forget_results(rank, operation);
    for (const Tensor* written : operation.writes)
        known(rank).change(*written, [&](GradientUse& use) {
            if (use.added_by == nullptr) {
                use.added_by = operation.name;
                use.added_at = operation.at;
            }
            return true;
        });
}

void GradientUseWatcher::use(int rank, const DeviceOperation& operation) {
    const Tensor& gradient = gradient_of(operation);
    for (const auto& range : known(rank).read(gradient))
        if (range.fact.added_by != nullptr) report(explain(rank, range.fact, operation));
    known(rank).set(gradient, {operation.name, operation.at, nullptr, {}});
}

/// A gradient that is reduced in place stays the same gradient.
void GradientUseWatcher::collective_begins(const Team& /*team*/, const Meeting& meeting) {
    for (const Posted* side : meeting.arrived) {
        const CommOperation& operation = side->operation;
        const bool in_place = operation.input && operation.output &&
                              has_reduction(operation.verb) &&
                              operation.input.overlaps(operation.output);
        if (operation.output && !in_place)
            known(side->launch->rank).forget(operation.output);
    }
}

}  // namespace

std::unique_ptr<Watcher> watch_gradient_use(Engine& engine) {
    return std::make_unique<GradientUseWatcher>(engine.ranks().size());
}

}  // namespace lockstep::sim
