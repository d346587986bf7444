#include "sim/check/replicas.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "sim/check/contents.hpp"
#include "sim/check/layouts.hpp"
#include "sim/check/replica_text.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

using Claim = Rollcall::Claim;

Diagnosis explain(const Rollcall::Roll& roll, const std::vector<Rollcall::Side>& sides) {
    return roll.claims.front().is_gradient ? explain_own_gradients(roll, sides)
                                           : explain_drifted(roll, sides);
}

std::string reduction_text(const Layout& gradient, const Team& replicas) {
    return gradient.origin->text_with_line() +
           (contains(*gradient.team(), replicas)
                ? ", and changed since"
                : fmt::format(", not over {}", replicas.name));
}

}  // namespace

ReplicaWatcher::ReplicaWatcher(const Engine& engine, const Layouts& layouts)
    : engine_(engine),
      layouts_(layouts),
      ranks_(static_cast<std::size_t>(engine.options().ranks)),
      declarations_(ranks_.size()),
      rollcall_(explain) {}

void ReplicaWatcher::declared(const Team& team, int member, const Tensor& tensor,
                              const std::string& name, SourceLine at) {
    declarations_.add(team, member, tensor, name, at);
}

void ReplicaWatcher::executing(int rank, const DeviceOperation& operation) {
    if (is_update(operation)) {
        compare_declared(rank, operation);
        compare_reduced(rank, operation);
    }
    for (const Tensor* write : operation.writes)
        of(rank).makers.set(*write, {operation.name, operation.at});
}

Claim ReplicaWatcher::claim_of(int rank, const DeviceOperation& update,
                               const Tensor& tensor, std::uint64_t step) {
    Claim claim;
    claim.hash = hash_of(tensor);
    claim.shape = tensor.shape();
    claim.dtype = tensor.dtype();
    claim.name = name_of(tensor);
    claim.by = update.name;
    claim.at = update.at;
    claim.time = engine_.ranks()[rank]->clock.now();
    claim.step = step;
    for (const auto& made : of(rank).makers.read(tensor))
        claim.makers.push_back({made.begin, made.end, made.fact.name, made.fact.at});
    noted_ = true;
    return claim;
}

/// The parameter, which is looked at first, and the gradient.
void ReplicaWatcher::compare_declared(int rank, const DeviceOperation& update) {
    for (const Declarations::Part& part : declarations_.updated_by(rank, update)) {
        const Declarations::Declaration& declaration = *part.declaration;
        const Layout layout = layouts_.of(rank, part.gradient);
        Claim value = claim_of(rank, update, part.value, part.step);
        Claim gradient = claim_of(rank, update, part.gradient, part.step);
        gradient.is_gradient = true;
        if (is_reduced(layout))
            gradient.reduced = reduction_text(layout, *declaration.team);
        for (Claim* claim : {&value, &gradient}) {
            claim->member = declaration.member;
            claim->name = declaration.name.empty() ? value.name : declaration.name;
            claim->declared_at = declaration.at;
        }
        rollcall_.note(*declaration.team, part.number, std::move(value),
                       [&] { return values_of(part.value); });
        rollcall_.note(*declaration.team, mixed(part.number, 1), std::move(gradient),
                       [&] { return values_of(part.gradient); });
    }
}

void ReplicaWatcher::compare_reduced(int rank, const DeviceOperation& update) {
    const Tensor& parameter = parameter_of(update);
    const Tensor& gradient = gradient_of(update);
    RankMemory& mine = of(rank);
    if (parameter.bytes() == 0) return;
    const std::uint64_t step =
        ++mine.steps[parameter.storage()][parameter.offset_bytes()];
    const Layout layout = layouts_.of(rank, gradient);
    const Team* const team = layout.team();
    if (layout.kind != Layout::Kind::replicated || !layout.reduced || team == nullptr ||
        team->size() < 2)
        return;
    const auto member = std::find(team->ranks.begin(), team->ranks.end(), rank);
    if (member == team->ranks.end()) return;

    Claim claim = claim_of(rank, update, parameter, step);
    claim.member = static_cast<int>(member - team->ranks.begin());
    // Several parameters may step with one gradient.
    std::uint64_t number = layout.identity;
    for (const char letter : claim.name)
        number = mixed(number, static_cast<unsigned char>(letter));
    auto& [last, uses] = mine.uses[gradient.storage()][gradient.offset_bytes()];
    uses = last == number ? uses + 1 : 0;
    last = number;
    number = mixed(number, uses);
    rollcall_.note(*team, number, std::move(claim), [&] { return values_of(parameter); });
}

void ReplicaWatcher::copied(int rank, CopyDirection direction, const Tensor& tensor,
                            SourceLine at) {
    if (direction == CopyDirection::to_device)
        of(rank).makers.set(tensor, {"upload", at});
}

void ReplicaWatcher::launched(Batch& batch) {
    for (const Posted& posted : batch.posted) {
        const CommOperation& operation = posted.operation;
        if (operation.output)
            of(batch.rank)
                .makers.set(operation.output,
                            {lockstep::name_of(operation.verb), operation.at});
    }
}

void ReplicaWatcher::freed(int rank, const Storage& storage) noexcept {
    of(rank).makers.free(storage);
    of(rank).steps.erase(&storage);
    of(rank).uses.erase(&storage);
    declarations_.freed(rank, storage);
}

void ReplicaWatcher::quiet() {
    if (!noted_) return;
    noted_ = false;
    rollcall_.compare();
    // A roll that some member will never answer: it steps with another part.
    constexpr std::uint64_t kClaims = 64;
    rollcall_.forget_old(kClaims);
}

}  // namespace lockstep::sim
