#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "sim/check/check.hpp"
#include "sim/check/gradient_terms.hpp"
#include "sim/check/layouts.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/rollcall.hpp"
#include "sim/check/shadow.hpp"
#include "sim/check/tensors.hpp"
#include "sim/engine.hpp"
#include "sim/team.hpp"
#include "sim/watcher.hpp"

namespace lockstep::sim {

namespace {

/// The tensors that ranks have declared to be replicas (declare_replicas), and how often
/// each was updated. A declaration ends when the memory is freed.
class Declarations {
  public:
    struct Declaration {
        const Team* team;
        int member;
        std::uint64_t number;  ///< the same on all members
        std::string name;
        SourceLine at;
        ByteRange range;
        std::map<ByteRange, std::uint64_t> updates;  ///< how often each part was updated
        /// How often other operations have changed it. A rank may do so once too often.
        std::map<ByteRange, std::uint64_t> changes{};
    };
    /// The part of a declared tensor that an update changes: all of it, or a shard.
    struct Part {
        const Declaration* declaration;
        std::uint64_t step;    ///< of this part, from 1
        std::uint64_t number;  ///< identifies part and step; equal on all members
        Tensor value;
        Tensor gradient;
    };

    explicit Declarations(std::size_t ranks) : ranks_(ranks) {}

    void add(const Team& team, int member, const Tensor& tensor, const std::string& name,
             SourceLine at);
    void freed(int rank, const Storage& storage) noexcept;
    bool empty(int rank) const { return ranks_[rank].by_storage.empty(); }
    /// Returns the declared parts that an update with this gradient changes, and counts
    /// the update. Without a gradient, other operations step the parameter.
    std::vector<Part> updated_by(int rank, const Tensor& parameter,
                                 const Tensor& gradient);

  private:
    struct RankDeclarations {
        std::unordered_map<const Storage*, std::vector<Declaration>> by_storage;
        /// By team and name: members may declare in different orders.
        std::map<std::pair<int, std::string>, std::uint64_t> counts;
    };

    RankDeclarations& declarations_of(int rank) { return ranks_[rank]; }

    std::vector<RankDeclarations> ranks_;
};

/// F24: ranks that update with the same reduced gradient, and ranks that have declared
/// replicas (declare_replicas), must hold the same parameter before the step. F23: ranks
/// that have declared replicas must also use the same gradient, bit by bit.
///
/// Compares the bits of parameters that members of a team update with the same part of a
/// sum over the team. Shards are updated with different parts, so they are not compared.
/// Ranks that update with their own gradients (local SGD) are compared only if they have
/// declared replicas.
class ReplicaWatcher final : public Watcher {
  public:
    ReplicaWatcher(const Engine& engine, const Layouts& layouts,
                   const TermsTracker& terms, const Clips& clips);

    void declared(const Team& team, int member, const Tensor& tensor,
                  const std::string& name, SourceLine at) override;
    void executing(int rank, const DeviceOperation& operation) override;
    void copied(int rank, CopyDirection direction, const Tensor& tensor,
                SourceLine at) override;
    void launched(Launch& launch) override;
    void freed(int rank, const Storage& storage) noexcept override;
    void quiet() override { rollcall_.compare_new(); }
    void run_ended() override { quiet(); }

  private:
    /// The operation that last wrote a part of the memory.
    struct Maker {
        const char* name = "";
        SourceLine at;
    };
    struct RankMemory {
        Shadow<Maker> makers;
        template <typename Value>
        using ByPlace = std::unordered_map<const Storage*, std::map<std::int64_t, Value>>;
        /// The number of updates of each parameter.
        ByPlace<std::uint64_t> steps;
        /// The last claim about each gradient, and how often it was made in a row.
        ByPlace<std::pair<std::uint64_t, std::uint64_t>> uses;
    };

    RankMemory& memory_of(int rank) { return ranks_[rank]; }
    Rollcall::Claim claim_of(int rank, const DeviceOperation& update,
                             const Tensor& tensor, std::uint64_t step);
    void compare_declared(int rank, const DeviceOperation& update);
    void compare_changed(int rank, const DeviceOperation& operation,
                         const Tensor& changed);
    void compare_reduced(int rank, const DeviceOperation& update);

    const Engine& engine_;
    const Layouts& layouts_;
    const TermsTracker& terms_;
    const Clips& clips_;
    std::vector<RankMemory> ranks_;
    Declarations declarations_;
    Rollcall rollcall_;
};

void Declarations::add(const Team& team, int member, const Tensor& tensor,
                       const std::string& name, SourceLine at) {
    const ByteRange range = ByteRange::of(tensor);
    if (team.size() < 2 || range.empty()) return;
    RankDeclarations& mine = declarations_of(team.ranks[member]);
    std::vector<Declaration>& here = mine.by_storage[tensor.storage()];
    const bool known = std::any_of(here.begin(), here.end(), [&](const auto& past) {
        return past.team == &team && past.range == range;
    });
    if (known) return;
    std::uint64_t number = mixed(0x6465636c, mine.counts[{team.id, name}]++);
    for (const char letter : name)
        number = mixed(number, static_cast<unsigned char>(letter));
    here.push_back({&team, member, number, name, at, range, {}});
}

void Declarations::freed(int rank, const Storage& storage) noexcept {
    declarations_of(rank).by_storage.erase(&storage);
}

std::vector<Declarations::Part> Declarations::updated_by(int rank,
                                                         const Tensor& parameter,
                                                         const Tensor& gradient) {
    std::vector<Part> parts;
    const auto found = declarations_of(rank).by_storage.find(parameter.storage());
    if (found == declarations_of(rank).by_storage.end()) return parts;
    const ByteRange range = ByteRange::of(parameter);
    for (Declaration& declaration : found->second) {
        if (!declaration.range.overlaps(range)) continue;
        const std::int64_t first = std::max(range.begin, declaration.range.begin);
        const std::int64_t last = std::min(range.end, declaration.range.end);
        const ByteRange part{first - declaration.range.begin,
                             last - declaration.range.begin};
        const std::uint64_t step =
            ++(gradient ? declaration.updates : declaration.changes)[part];
        std::uint64_t number = mixed(declaration.number, step);
        if (!gradient) number = mixed(number, 0x6368616e);
        number = mixed(number, static_cast<std::uint64_t>(part.begin));
        number = mixed(number, static_cast<std::uint64_t>(part.end));
        const auto stepped = [&](const Tensor& tensor) {
            if (!tensor || part.end - part.begin == range.end - range.begin)
                return tensor;
            const std::int64_t each = bytes_of(parameter.dtype());
            return tensor.slice((first - range.begin) / each, (last - first) / each);
        };
        parts.push_back(
            {&declaration, step, number, stepped(parameter), stepped(gradient)});
    }
    return parts;
}

using Claim = Rollcall::Claim;
using Roll = Rollcall::Roll;
using Side = Rollcall::Side;

/// Returns the operation that made the byte at `place` of a claim's values.
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

/// Returns the first byte that differs; 0 if the shapes differ.
std::int64_t differing_byte(const Roll& roll, const Claim& a, const Claim& b) {
    const HostTensor* const mine = roll.values_of(a);
    const HostTensor* const usual = roll.values_of(b);
    if (mine == nullptr || usual == nullptr || !(a.shape == b.shape)) return 0;
    return std::max<std::int64_t>(difference_in_bits(*mine, *usual).first, 0) *
           bytes_of(a.dtype);
}

/// "3 on ranks 0, 2–3 (sgd at train.cpp:12)".
std::string gradient_text(const Roll& roll, const Side& side, const std::string& value) {
    return fmt::format("{} on {} ({} at {})", value.empty() ? "one" : value,
                       ranks_text(side.ranks(*roll.team)), side.first().call,
                       side.first().at.text());
}

/// Returns, as text, which collectives reduced the two gradients, as far as is known.
std::string reductions_text(const Roll& roll, const Side& usual, const Side& odd) {
    const std::string& one = usual.first().reduced;
    const std::string& other = odd.first().reduced;
    if (usual.first().is_in_part || odd.first().is_in_part)
        return fmt::format("each rank has only its part of the sum over {}, from {}",
                           roll.team->name, usual.first().is_in_part ? one : other);
    if (one.empty() && other.empty())
        return fmt::format("nothing is known to have reduced it over {}",
                           roll.team->name);
    if (one == other) return fmt::format("it was reduced by {}", one);
    const auto text = [&](const Side& side) {
        const std::string& collective = side.first().reduced;
        return fmt::format("{} by {}", ranks_text(side.ranks(*roll.team)),
                           collective.empty() ? "nothing that is known" : collective);
    };
    return fmt::format("it was reduced on {}, but on {}", text(odd), text(usual));
}

/// Returns, as text, which ranks' terms one of the gradients lacks. Empty if the team's
/// gradients were never summed: then each gradient has only its own rank's terms.
std::string lack_text(const Roll& roll, const Side& usual, const Side& odd) {
    const std::vector<int> team = sorted_ranks(*roll.team);
    const auto is_of_team = [&](int rank) {
        return std::binary_search(team.begin(), team.end(), rank);
    };
    const auto is_summed = [&](const Side& side) {
        const auto& terms = side.first().terms;
        if (terms == nullptr) return false;
        return std::ranges::count_if(terms->ranks, [&](const auto& term) {
                   return is_of_team(term.first);
               }) > 1;
    };
    if (!is_summed(usual) && !is_summed(odd)) return "";
    return terms_text({usual.ranks(*roll.team), usual.first().terms},
                      {odd.ranks(*roll.team), odd.first().terms});
}

bool differ_by_rounding(const Roll& roll, const Side& usual, const Side& odd) {
    const HostTensor* const one = roll.values_of(usual.first());
    const HostTensor* const other = roll.values_of(odd.first());
    return one != nullptr && other != nullptr && one->shape() == other->shape() &&
           !differ_by_more_than_rounding(*one, *other);
}

constexpr const char* kParts =
    "Something between the data and this gradient differs between these ranks. With "
    "tensor parallelism: they read different batches (declare_same() compares what they "
    "read), or an all-reduce is missing: f's (backward, at the start of a "
    "column-parallel layer) or g's (forward, at the end of a row-parallel layer). With "
    "sequence parallelism: each rank has seen only its own tokens; call "
    "complete_gradients() after the last backward. Otherwise: sum the gradient over "
    "these ranks before this line.";
constexpr const char* kTerms =
    "All of these ranks must make the same sums of this gradient. Look for a condition, "
    "or a list of groups, that makes some ranks leave out a sum or make it twice.";
constexpr const char* kWhole =
    "The gradients are sharded, but the whole parameter is updated. Make the optimizer "
    "for the shards; then it also keeps only their state. Gather the new values after "
    "the step.";
constexpr const char* kRounding =
    "The gradients differ only by rounding, because the sums were made in another order. "
    "That is enough for replicas to drift apart: let all ranks use one result; that of "
    "an all_reduce has the same bits on all of them.";

/// F24: replicas of a parameter that differ before a step.
Diagnosis explain_drifted(const Roll& roll, const std::vector<Side>& sides) {
    const Team& team = *roll.team;
    const Claim& usual = sides[0].first();
    const Claim& odd = sides[1].first();
    const FirstDifference difference = first_difference(roll, odd, usual);
    const std::int64_t place = differing_byte(roll, odd, usual);
    const auto holds = [&](const Side& side, const std::string& value) {
        const std::vector<int> ranks = side.ranks(team);
        return fmt::format("{} {} {}{}", ranks_text(ranks),
                           ranks.size() == 1 ? "holds" : "hold",
                           value.empty() ? side.first().shape.text() : value,
                           made_text(maker_at(side.first(), place)));
    };
    Diagnosis diagnosis = diagnosis_on(team, "F24");
    diagnosis.sentence = fmt::format(
        "before step {} the replicas of {} over {} differ{}{}: {}, but {}; {} {}",
        usual.step, usual.name, team.name, difference.element.empty() ? "" : " in ",
        difference.element, holds(sides[1], difference.odd),
        holds(sides[0], difference.usual),
        usual.declared_at.line > 0
            ? fmt::format("they were declared replicas at {}, and all step at",
                          usual.declared_at.text())
            : "then all step with the same gradient at",
        usual.at.text());
    if (!difference.differing.empty()) diagnosis.details.push_back(difference.differing);
    for (const Side& side : sides) {
        const Claim& claim = side.first();
        const Claim::Maker* const maker = maker_at(claim, place);
        const std::string value = &side == &sides[0]
                                      ? difference.usual
                                      : first_difference(roll, claim, usual).odd;
        diagnosis.parties.push_back(
            maker == nullptr
                ? party(side.ranks(team), "update of " + claim.name, claim.at, value)
                : party(side.ranks(team),
                        fmt::format("{} wrote {}", maker->name, claim.name), maker->at,
                        value));
    }
    return diagnosis;
}

/// F23: different gradients of a parameter that was declared a replica.
Diagnosis explain_own_gradients(const Roll& roll, const std::vector<Side>& sides) {
    const Team& team = *roll.team;
    const Side& usual = sides[0];
    const Side& odd = sides[1];
    const FirstDifference difference = first_difference(roll, odd.first(), usual.first());
    const std::string lack = lack_text(roll, usual, odd);
    Diagnosis diagnosis = diagnosis_on(team, "F23");
    diagnosis.sentence = fmt::format(
        "in step {} {} hold the same {}, declared a replica over {} at {}, but update it "
        "with different gradients: {} of the gradient is {}, but {}; {}",
        usual.first().step, ranks_text(sorted_ranks(team)), usual.first().name, team.name,
        usual.first().declared_at.text(), difference.element,
        gradient_text(roll, usual, difference.usual),
        gradient_text(roll, odd, difference.odd),
        lack.empty() ? reductions_text(roll, usual, odd) : lack);
    diagnosis.cause = differ_by_rounding(roll, usual, odd)                 ? kRounding
                      : usual.first().is_in_part || odd.first().is_in_part ? kWhole
                      : !lack.empty()                                      ? kTerms
                                                                           : kParts;
    if (!difference.differing.empty()) diagnosis.details.push_back(difference.differing);
    if (sides.size() > 2) {
        std::vector<int> rest;
        for (std::size_t i = 2; i < sides.size(); ++i)
            for (const int rank : sides[i].ranks(team))
                rest.push_back(rank);
        std::sort(rest.begin(), rest.end());
        diagnosis.details.push_back(fmt::format(
            "{} {}", ranks_text(rest),
            rest.size() == 1 ? "has yet another gradient" : "have yet other gradients"));
    }
    for (const Side* side : {&usual, &odd})
        diagnosis.parties.push_back(
            party(side->ranks(team),
                  fmt::format("{} of {}", side->first().call, side->first().name),
                  side->first().at, "its own gradient"));
    return diagnosis;
}

Diagnosis explain(const Roll& roll, const std::vector<Side>& sides, const Clips& clips) {
    if (!roll.claims.front().is_gradient) return explain_drifted(roll, sides);
    const Claim &usual = sides[0].first(), &odd = sides[1].first();
    if (usual.clip >= 0 && usual.clip == odd.clip)
        if (auto found = clips.explain_unlike(roll.team->ranks[usual.member],
                                              roll.team->ranks[odd.member], usual.clip))
            return *std::move(found);
    return explain_own_gradients(roll, sides);
}

std::string reduction_text(const Layout& gradient, const Team& replicas) {
    return gradient.origin->text_with_line() +
           (contains(*gradient.team(), replicas)
                ? ", and changed since"
                : fmt::format(", not over {}", replicas.name));
}

ReplicaWatcher::ReplicaWatcher(const Engine& engine, const Layouts& layouts,
                               const TermsTracker& terms, const Clips& clips)
    : engine_(engine),
      layouts_(layouts),
      terms_(terms),
      clips_(clips),
      ranks_(static_cast<std::size_t>(engine.options().ranks)),
      declarations_(ranks_.size()),
      rollcall_(
          [&clips](const Roll& roll, const std::vector<Side>& sides) {
              return explain(roll, sides, clips);
          },
          [this](Diagnosis diagnosis) { report(std::move(diagnosis)); }) {}

void ReplicaWatcher::declared(const Team& team, int member, const Tensor& tensor,
                              const std::string& name, SourceLine at) {
    declarations_.add(team, member, tensor, name, at);
}

void ReplicaWatcher::executing(int rank, const DeviceOperation& operation) {
    if (is_update(operation)) {
        compare_declared(rank, operation);
        compare_reduced(rank, operation);
    } else if (!declarations_.empty(rank)) {
        for (const Tensor* write : operation.writes)
            compare_changed(rank, operation, *write);
    }
    for (const Tensor* write : operation.writes)
        memory_of(rank).makers.set(*write, {operation.name, operation.at});
}

Claim ReplicaWatcher::claim_of(int rank, const DeviceOperation& update,
                               const Tensor& tensor, std::uint64_t step) {
    Claim claim;
    claim.hash = hash_of(tensor);
    claim.shape = tensor.shape();
    claim.dtype = tensor.dtype();
    claim.name = name_of(tensor);
    claim.call = update.name;
    claim.at = update.at;
    claim.time = engine_.ranks()[rank]->virtual_device.now();
    claim.step = step;
    for (const auto& made : memory_of(rank).makers.read(tensor))
        claim.makers.push_back({made.begin, made.end, made.fact.name, made.fact.at});
    return claim;
}

/// Compares first the parameter, then the gradient.
void ReplicaWatcher::compare_declared(int rank, const DeviceOperation& update) {
    for (const Declarations::Part& part :
         declarations_.updated_by(rank, parameter_of(update), gradient_of(update))) {
        const Declarations::Declaration& declaration = *part.declaration;
        const Layout layout = layouts_.layout_of(rank, part.gradient);
        Claim value = claim_of(rank, update, part.value, part.step);
        Claim gradient = claim_of(rank, update, part.gradient, part.step);
        gradient.is_gradient = true;
        gradient.terms = terms_.terms_of(rank, part.gradient);
        gradient.clip = clips_.clip_of(rank, part.gradient);
        if (is_reduced(layout)) {
            gradient.reduced = reduction_text(layout, *declaration.team);
        } else if (const Origin dealing =
                       layouts_.dealt_within(rank, part.gradient, *declaration.team)) {
            gradient.reduced = dealing->text_with_line();
            gradient.is_in_part = true;
        }
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

/// An optimizer may be made of any operations, and a buffer has none: an operation that
/// changes a declared tensor between two passes is a step of it.
void ReplicaWatcher::compare_changed(int rank, const DeviceOperation& operation,
                                     const Tensor& changed) {
    const Phase phase = engine_.ranks()[rank]->virtual_device.phase();
    const bool reads_it = std::ranges::any_of(operation.reads, [&](const Tensor* read) {
        return read->storage() == changed.storage() && read->overlaps(changed);
    });
    if (!reads_it || (phase != Phase::none && phase != Phase::update)) return;
    for (const Declarations::Part& part :
         declarations_.updated_by(rank, changed, Tensor())) {
        const Declarations::Declaration& declaration = *part.declaration;
        Claim claim = claim_of(rank, operation, part.value, part.step);
        claim.member = declaration.member;
        if (!declaration.name.empty()) claim.name = declaration.name;
        claim.declared_at = declaration.at;
        rollcall_.note(*declaration.team, part.number, std::move(claim),
                       [&] { return values_of(part.value); });
    }
}

void ReplicaWatcher::compare_reduced(int rank, const DeviceOperation& update) {
    const Tensor& parameter = parameter_of(update);
    const Tensor& gradient = gradient_of(update);
    RankMemory& mine = memory_of(rank);
    if (parameter.bytes() == 0) return;
    const std::uint64_t step =
        ++mine.steps[parameter.storage()][parameter.offset_bytes()];
    const Layout layout = layouts_.layout_of(rank, gradient);
    const Team* const team = layout.team();
    if (layout.kind != Layout::Kind::replicated || !layout.reduced || team == nullptr ||
        team->size() < 2)
        return;
    const int member = team->member_of(rank);
    if (member < 0) return;

    Claim claim = claim_of(rank, update, parameter, step);
    claim.member = member;
    // Several parameters may be updated with one gradient.
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
        memory_of(rank).makers.set(tensor, {"upload", at});
}

void ReplicaWatcher::launched(Launch& launch) {
    for (const Posted& posted : launch.posted) {
        const CommOperation& operation = posted.operation;
        if (operation.output)
            memory_of(launch.rank)
                .makers.set(operation.output,
                            {lockstep::name_of(operation.verb), operation.at});
    }
}

void ReplicaWatcher::freed(int rank, const Storage& storage) noexcept {
    memory_of(rank).makers.free(storage);
    memory_of(rank).steps.erase(&storage);
    memory_of(rank).uses.erase(&storage);
    declarations_.freed(rank, storage);
}

}  // namespace

std::unique_ptr<Watcher> watch_replicas(Engine& engine, const Layouts& layouts,
                                        const TermsTracker& terms, const Clips& clips) {
    return std::make_unique<ReplicaWatcher>(engine, layouts, terms, clips);
}

}  // namespace lockstep::sim
