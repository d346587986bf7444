#include "sim/check/replicas.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "sim/check/contents.hpp"
#include "sim/check/layouts.hpp"
#include "sim/check/team_diagnosis.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

using Claim = Rollcall::Claim;

/// What made the byte at `place` of a claim's values.
const Claim::Maker* maker_at(const Claim& claim, std::int64_t place) {
    for (const Claim::Maker& maker : claim.makers)
        if (maker.begin <= place && place < maker.end) return &maker;
    return nullptr;
}

std::string made_text(const Claim::Maker* maker) {
    return maker == nullptr
               ? ""
               : fmt::format(", written by {} at {}", maker->name, maker->at.text());
}

/// Parameters of the sides, where they are not of one shape, differ in no element.
std::int64_t differing_byte(const Rollcall::Roll& roll, const Claim& a, const Claim& b) {
    const HostTensor* const mine = roll.values_of(a);
    const HostTensor* const usual = roll.values_of(b);
    if (mine == nullptr || usual == nullptr || !(a.shape == b.shape)) return 0;
    return std::max<std::int64_t>(difference_in_bits(*mine, *usual).first, 0) *
           bytes_of(a.dtype);
}

Diagnosis explain(const Rollcall::Roll& roll, const std::vector<Rollcall::Side>& sides) {
    const Team& team = *roll.team;
    const Claim& usual = sides[0].first();
    const Claim& odd = sides[1].first();
    const FirstDifference difference = first_difference(roll, odd, usual);
    const std::int64_t place = differing_byte(roll, odd, usual);
    const auto holds = [&](const Rollcall::Side& side, const std::string& value) {
        const std::vector<int> ranks = side.ranks(team);
        return fmt::format("{} {} {}{}", ranks_text(ranks),
                           ranks.size() == 1 ? "holds" : "hold",
                           value.empty() ? side.first().shape.text() : value,
                           made_text(maker_at(side.first(), place)));
    };
    Diagnosis diagnosis = diagnosis_on(team, "F24");
    diagnosis.sentence = fmt::format(
        "before step {} the replicas of {} over {} differ{}{}: {}, but {}; then all step "
        "with the same gradient at {}",
        usual.step, usual.name, team.name, difference.element.empty() ? "" : " in ",
        difference.element, holds(sides[1], difference.odd),
        holds(sides[0], difference.usual), usual.at.text());
    if (!difference.differing.empty()) diagnosis.details.push_back(difference.differing);
    for (const Rollcall::Side& side : sides) {
        const Claim& claim = side.first();
        const Claim::Maker* const maker = maker_at(claim, place);
        const std::string value = &side == &sides[0]
                                      ? difference.usual
                                      : first_difference(roll, claim, usual).odd;
        diagnosis.parties.push_back(
            {side.ranks(team),
             maker == nullptr ? fmt::format("update of {}", claim.name)
                              : fmt::format("{} wrote {}", maker->name, claim.name),
             value,
             maker == nullptr ? claim.at : maker->at,
             {}});
    }
    return diagnosis;
}

}  // namespace

ReplicaWatcher::ReplicaWatcher(const Engine& engine, const Layouts& layouts)
    : engine_(engine),
      layouts_(layouts),
      ranks_(static_cast<std::size_t>(engine.options().ranks)),
      rollcall_(explain) {}

void ReplicaWatcher::executing(int rank, const DeviceOperation& operation) {
    if (is_update(operation)) updates(rank, operation);
    for (const Tensor* write : operation.writes)
        of(rank).makers.set(*write, {operation.name, operation.at});
}

void ReplicaWatcher::updates(int rank, const DeviceOperation& operation) {
    const Tensor& parameter = parameter_of(operation);
    const Tensor& gradient = gradient_of(operation);
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

    Claim claim;
    claim.member = static_cast<int>(member - team->ranks.begin());
    claim.hash = hash_of(parameter);
    claim.shape = parameter.shape();
    claim.dtype = parameter.dtype();
    claim.name = name_of(parameter);
    claim.at = operation.at;
    claim.time = engine_.ranks()[static_cast<std::size_t>(rank)]->clock.now();
    claim.step = step;
    for (const auto& made : mine.makers.read(parameter))
        claim.makers.push_back({made.begin, made.end, made.fact.name, made.fact.at});
    // Several parameters may step with one gradient.
    std::uint64_t number = layout.identity;
    for (const char letter : claim.name)
        number = mixed(number, static_cast<unsigned char>(letter));
    auto& [last, uses] = mine.uses[gradient.storage()][gradient.offset_bytes()];
    uses = last == number ? uses + 1 : 0;
    last = number;
    number = mixed(number, uses);
    rollcall_.note(*team, number, std::move(claim), [&] { return values_of(parameter); });
    noted_ = true;
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
