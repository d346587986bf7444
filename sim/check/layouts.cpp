#include "sim/check/layouts.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "sim/check/origin.hpp"
#include "sim/engine.hpp"
#include "src/device/monitor.hpp"

namespace lockstep::sim {

using Kind = Layout::Kind;

namespace {

/// Returns the identity of a range's values: the fact's identity and the range's place.
inline std::uint64_t identity_at(const Shadow<Layout>::Range& range) {
    return mixed(range.fact.identity, static_cast<std::uint64_t>(range.shift()));
}

/// Returns the first layout if all ranges are `wanted` and of the same ranks; else null.
template <typename Wanted>
const Layout* all_of_one(const LayoutRanges& ranges, const Tensor& tensor,
                         Wanted wanted) {
    if (ranges.empty() || !cover(ranges, tensor.bytes())) return nullptr;
    for (const auto& range : ranges)
        if (!wanted(range.fact) ||
            !same_ranks(*range.fact.team(), *ranges.front().fact.team()))
            return nullptr;
    return &ranges.front().fact;
}

/// Finds the layout of a device operation's result: call add() for each operand, in
/// order. An operand of unknown layout makes the result unknown, unless another operand
/// is a shard.
class LayoutJoin {
  public:
    explicit LayoutJoin(const DeviceOperation& operation);

    void add(const Tensor& operand, LayoutRanges ranges);
    Layout result() const;

  private:
    void add(const Layout& layout, bool added_to);
    void add_replica(const Layout& layout);
    bool is_product() const;

    const DeviceOperation& operation_;
    std::vector<LayoutRanges> operands_;  ///< the pointers below point into these
    std::uint64_t identity_;
    bool unknown_;                     ///< an operand's layout is unknown or does not fit
    Layout varying_;                   ///< of the first shard
    const Layout* replica_ = nullptr;  ///< the first
    bool reduced_ = true;          ///< all replicas are reduced, no constant is a factor
    const Layout* sum_ = nullptr;  ///< the reduced sum to which the result is added
    const Layout* drifted_ = nullptr;  ///< drifted values to which the result is added
};

LayoutJoin::LayoutJoin(const DeviceOperation& operation)
    : operation_(operation),
      identity_(
          mixed(static_cast<std::uint64_t>(operation.flops),
                static_cast<std::uint64_t>(operation.derivation.factor * 4294967296.0))),
      unknown_(operation.derivation.kind == Derivation::Kind::part) {
    identity_ = mixed(identity_, static_cast<std::uint64_t>(operation.kind));
    operands_.reserve(operation.reads.size());
}

void LayoutJoin::add(const Tensor& operand, LayoutRanges ranges) {
    operands_.push_back(std::move(ranges));
    const LayoutRanges& known = operands_.back();
    unknown_ = unknown_ || !cover(known, operand.bytes());
    const bool added_to = operation_.derivation.adds && &operand == operation_.writes[0];
    if (added_to && is_backward_sum(operation_))
        sum_ = all_of_one(known, operand, [](const Layout& layout) {
            return (is_reduced(layout) && is_one(layout.multiplier)) ||
                   layout.kind == Kind::mixed;
        });
    for (const auto& range : known) {
        identity_ = mixed(identity_, identity_at(range));
        identity_ = mixed(identity_, static_cast<std::uint64_t>(range.begin));
        add(range.fact, added_to);
    }
}

void LayoutJoin::add(const Layout& layout, bool added_to) {
    switch (layout.kind) {
        case Kind::constant:
            // A constant may be a shard of a whole: then its product is a term of a sum.
            reduced_ = reduced_ && (added_to || !is_product());
            return;
        case Kind::sharded:
        case Kind::varying:
            if (varying_.kind == Kind::varying) return;
            varying_.kind = Kind::varying;
            varying_.origin = layout.origin;
            return;
        case Kind::replicated:
            return add_replica(layout);
        case Kind::drifted:
            unknown_ = true;
            if (added_to && drifted_ == nullptr) drifted_ = &layout;
            return;
        case Kind::mixed:
            unknown_ = unknown_ || !added_to;
            return;
        case Kind::unknown:
        case Kind::twice:
            unknown_ = true;
            return;
    }
}

/// Returns whether the operation is linear in two operands.
bool LayoutJoin::is_product() const {
    const unsigned linear = operation_.derivation.linear;
    return (linear & (linear - 1)) != 0;
}

void LayoutJoin::add_replica(const Layout& layout) {
    if (replica_ == nullptr) replica_ = &layout;
    unknown_ = unknown_ || !same_ranks(*replica_->team(), *layout.team());
    reduced_ = reduced_ && layout.reduced;
}

Layout LayoutJoin::result() const {
    if (drifted_ != nullptr) return *drifted_;
    const bool varies = varying_.kind == Kind::varying;
    if (sum_ != nullptr && sum_->kind == Kind::mixed) return *sum_;
    if (sum_ != nullptr && (unknown_ || varies)) {
        Layout result = *sum_;
        result.kind = Kind::mixed;
        result.changed = operation_.at;
        return result;
    }
    if (varies) return varying_;
    if (unknown_) return {};
    Layout result;
    result.kind = replica_ == nullptr ? Kind::constant : Kind::replicated;
    if (replica_ != nullptr) {
        result.reduced = reduced_;
        result.origin = replica_->origin;
    }
    result.identity = identity_;
    return result;
}

Diagnosis explain_second(const char* fault, const Layout& twice, SourceLine read_at,
                         const char* reader) {
    const CollectiveOrigin& first = *twice.before->origin;
    const CollectiveOrigin& second = *twice.second;
    Diagnosis diagnosis = diagnosis_on(*second.team, second.sequence, fault);
    diagnosis.parties = {first.party(), second.party()};
    diagnosis.details.push_back(
        fmt::format("{} at {} uses the values.", reader, read_at.text()));
    return diagnosis;
}

/// F22, or F27 if something was added in between: the operation `reader` at `read_at`
/// uses values that were summed twice.
Diagnosis explain_twice(const Layout& twice, SourceLine read_at, const char* reader) {
    const int n = twice.second->team->size();
    if (twice.before->kind == Kind::mixed) {
        Diagnosis diagnosis = explain_second("F27", twice, read_at, reader);
        diagnosis.sentence = fmt::format(
            "the sum that {} made over {} is summed again: {} added this rank's new "
            "contribution to it, and {} adds up both over {} ranks, so the old sum "
            "counts {} times",
            twice.before->origin->text_with_line(),
            ranks_text(sorted_ranks(*twice.before->team())), twice.before->changed.text(),
            twice.second->text_with_line(), n, n);
        diagnosis.cause =
            "Within one step: reduce once, after its last micro-batch. From one step to "
            "the next: zero the gradients in between.";
        diagnosis.parties.insert(diagnosis.parties.begin() + 1,
                                 party(diagnosis.parties.front().ranks,
                                       "adds to what is reduced", twice.before->changed));
        return diagnosis;
    }
    Diagnosis diagnosis = explain_second("F22", twice, read_at, reader);
    diagnosis.sentence = fmt::format(
        "{} sums values that {} has already reduced over the same ranks: each of the {} "
        "ranks brings the whole sum, so the result is {} times too large",
        twice.second->text_with_line(), twice.before->origin->text_with_line(), n, n);
    return diagnosis;
}

/// F22: a collective adds up shards of a sum that was made earlier over the same ranks.
Diagnosis explain_summed_shards(const CollectiveOrigin& first,
                                const CollectiveOrigin& second) {
    Diagnosis diagnosis = diagnosis_on(*second.team, second.sequence, "F22");
    diagnosis.sentence = fmt::format(
        "{} sums values that {} has already summed over the same ranks: each rank holds "
        "a different shard of that sum, and now these different shards are added up",
        second.text_with_line(), first.text_with_line());
    diagnosis.cause =
        "The shards are already parts of the whole sum: remove the second reduction.";
    diagnosis.parties = {first.party(), second.party()};
    return diagnosis;
}

/// F23: replicas of a parameter are updated with gradients that were never reduced.
Diagnosis explain_drift(const Drift& drift) {
    const Team& team = *drift.gradient->team;
    Diagnosis diagnosis = diagnosis_on(team, "F23");
    diagnosis.sentence = fmt::format(
        "{} at {} updates replicas of one parameter ({}) on {} with gradients that "
        "come from each rank's own shard ({}) and were never reduced over {}",
        drift.operation, drift.at.text(), drift.parameter->text_with_line(),
        ranks_text(drift.ranks), drift.gradient->text_with_line(), team.name);
    diagnosis.parties = {party(drift.ranks, drift.operation, drift.at),
                         drift.gradient->party()};
    return diagnosis;
}

}  // namespace

Layouts::Layouts(const Engine& engine)
    : Tracker(engine.ranks().size()),
      engine_(engine),
      steps_with_(engine.ranks().size()) {}

Layout Layouts::layout_of(int rank, const Tensor& tensor) const {
    const auto* const range = known(rank).whole(tensor);
    if (range == nullptr) return {};
    Layout layout = range->fact;
    layout.identity =
        mixed(layout.identity,
              static_cast<std::uint64_t>(tensor.offset_bytes() - range->start));
    return layout;
}

Origin Layouts::dealt_within(int rank, const Tensor& tensor, const Team& team) const {
    const LayoutRanges ranges = known(rank).read(tensor);
    if (cover(ranges, tensor.bytes())) return nullptr;
    for (const auto& range : ranges)
        if (range.fact.kind == Kind::sharded && range.fact.reduced &&
            same_ranks(*range.fact.team(), team))
            return range.fact.origin;
    return nullptr;
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
            return copy_facts(rank, operation);
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

/// Reports values that were summed twice and are used. Copies and scalings are
/// allowed: a scaling may repair the values.
void Layouts::check_use(int rank, const DeviceOperation& operation) const {
    const Derivation::Kind kind = operation.derivation.kind;
    if (kind == Derivation::Kind::copy || kind == Derivation::Kind::scale) return;
    for (const Tensor* read : operation.reads)
        for (const auto& range : known(rank).read(*read))
            if (range.fact.kind == Kind::twice)
                report(explain_twice(range.fact, operation.at, operation.name));
}

void Layouts::scale(int rank, const DeviceOperation& operation) {
    const double factor = operation.derivation.factor;
    if (factor == 1) return;
    known(rank).change(*operation.writes[0], [&](Layout& layout) {
        layout.identity =
            mixed(layout.identity, static_cast<std::uint64_t>(factor * 4294967296.0));
        layout.multiplier *= factor;
        if (layout.kind != Kind::mixed && layout.kind != Kind::drifted)
            layout.changed = operation.at;
        if (layout.kind == Kind::mixed) return false;
        if (layout.kind != Kind::twice) return true;
        // The mean of replicas is the same as the replicas.
        if (!is_one(factor * layout.second->team->size()) || !is_reduced(*layout.before))
            return false;
        layout = Layout(*layout.before);
        return true;
    });
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
    const Layout was = layout_of(rank, parameter);
    const Layout step = layout_of(rank, gradient);
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
    // A rank may update two tensors of one broadcast, but is listed once.
    const auto place = std::lower_bound(drift.ranks.begin(), drift.ranks.end(), rank);
    if (place == drift.ranks.end() || *place != rank) drift.ranks.insert(place, rank);
    Layout drifted = was;
    drifted.kind = Kind::drifted;
    drifted.changed = operation.at;
    known(rank).set(parameter, drifted);
}

/// Finds a gradient that was forgotten while other gradients were reduced. A program that
/// reduces no gradient, or averages parameters now and then, does so on purpose.
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
        if (drift.ranks.size() > 1 && reduces_others) report(explain_drift(drift));
    }
}

namespace {

/// Zeros stay zeros if they are summed twice. Without numbers, all values may be zeros.
bool may_be_zeros(const Meeting& meeting) {
    return std::all_of(meeting.arrived.begin(), meeting.arrived.end(), [](Posted* side) {
        const Tensor& input = side->operation.input;
        if (!input.device()->has_numbers()) return true;
        const HostTensor values = input.device()->peek(input);
        for (std::int64_t i = 0; i < values.elements(); ++i)
            if (values.at(i) != 0) return false;
        return true;
    });
}

}  // namespace

void Layouts::collective_begins(const Team& team, const Meeting& meeting) {
    const CommOperation& first = meeting.first->operation;
    const VerbFacts verb = facts_of(first.verb);
    if (!verb.moves()) return;
    if (!drifts_.empty()) forget_drifts(meeting);
    const Origin origin = origin_of(meeting);
    Layout result;
    result.origin = origin;
    result.identity = identity_of(*origin);
    if (verb.reduces) {
        result = reduction_of(team, meeting, result);
    } else if (verb.is_alike() && verb.gathers()) {
        result = gathering_of(team, meeting, result);
    } else if (verb.is_alike()) {
        const Posted& root = *meeting.arrived[first.peer];
        const Layout sent = layout_of(root.launch->rank, root.operation.input);
        result.kind = Kind::replicated;
        if (is_reduced(sent) && contains(*sent.team(), team)) result = sent;
    } else if (verb.scatters()) {
        result.kind = Kind::sharded;
    }
    for (const Posted* side : holders_of(meeting)) {
        const Tensor& output = side->operation.output;
        if (result.kind == Kind::sharded) result.index = side->launch->member;
        if (result.kind == Kind::unknown)
            known(side->launch->rank).forget(output);
        else
            known(side->launch->rank).set(output, result);
    }
}

/// Returns the layout of a reduction's result: `twice` if all members pass the same
/// earlier sum, to which they may have added something.
Layout Layouts::reduction_of(const Team& team, const Meeting& meeting,
                             Layout result) const {
    const Origin origin = result.origin;
    result.reduced = origin->is_sum();
    result.kind = facts_of(origin->verb).scatters() ? Kind::sharded : Kind::replicated;
    if (origin->reduction != Reduction::sum || team.size() < 2 || origin->count == 0)
        return result;
    check_shards(team, meeting, origin);

    const Posted& one = *meeting.arrived.front();
    const Ranges ranges = known(one.launch->rank).read(one.operation.input);
    const Layout* const layout =
        all_of_one(ranges, one.operation.input, [&](const Layout& part) {
            const bool again =
                part.kind == Kind::mixed ||
                (is_reduced(part) && !is_one(part.multiplier * team.size()));
            return again && contains(*part.team(), team);
        });
    if (layout == nullptr) return result;
    for (const Posted* side : meeting.arrived) {
        const Ranges others = known(side->launch->rank).read(side->operation.input);
        const bool alike = std::equal(ranges.begin(), ranges.end(), others.begin(),
                                      others.end(), [](const auto& a, const auto& b) {
                                          return a.begin == b.begin && a.end == b.end &&
                                                 a.fact.kind == b.fact.kind &&
                                                 identity_at(a) == identity_at(b);
                                      });
        if (!alike) return result;
    }
    if (may_be_zeros(meeting)) return result;
    result.before = std::make_shared<const Layout>(*layout);
    result.second = origin;
    result.kind = Kind::twice;
    return result;
}

/// Returns the layout of a member's input if all inputs are shards of one sum over the
/// team's ranks and `fits` is true for each; else null.
template <typename Fits>
const Layout* Layouts::shards_of_one_sum(const Team& team, const Meeting& meeting,
                                         Fits fits) const {
    const Layout* first = nullptr;
    for (const Posted* side : meeting.arrived) {
        const auto* const range = known(side->launch->rank).whole(side->operation.input);
        if (range == nullptr || range->fact.kind != Kind::sharded ||
            !range->fact.reduced || !same_ranks(*range->fact.team(), team) ||
            (first != nullptr && first->identity != range->fact.identity) ||
            !fits(*range, *side))
            return nullptr;
        first = &range->fact;
    }
    return first;
}

/// Reports that each member brings a different shard of one sum: adding these up
/// makes no sense. One number per rank is allowed: it may be a count.
void Layouts::check_shards(const Team& team, const Meeting& meeting,
                           const Origin& origin) const {
    if (!is_floating(origin->dtype)) return;
    const Layout* const shard =
        shards_of_one_sum(team, meeting, [](const auto& range, const Posted& side) {
            const Layout& layout = range.fact;
            return layout.origin->count > 1 &&
                   layout.team()->ranks[layout.index] == side.launch->rank;
        });
    if (shard == nullptr || may_be_zeros(meeting)) return;
    report(explain_summed_shards(*shard->origin, *origin));
}

/// Shards of one sum, gathered in order, are the whole sum.
Layout Layouts::gathering_of(const Team& team, const Meeting& meeting,
                             Layout result) const {
    result.kind = Kind::replicated;
    const Layout* const shard =
        shards_of_one_sum(team, meeting, [&](const auto& range, const Posted& side) {
            return is_one(range.fact.multiplier) &&
                   range.fact.index == side.launch->member &&
                   range.start == side.operation.input.offset_bytes() &&
                   range.fact.origin->count == result.origin->count;
        });
    if (shard == nullptr) return result;
    result.reduced = true;
    result.origin = shard->origin;
    return result;
}

/// If a program exchanges drifted parameters in any way, it lets them drift on purpose.
void Layouts::forget_drifts(const Meeting& meeting) {
    for (const Posted* side : meeting.arrived)
        for (const Tensor* buffer : {&side->operation.input, &side->operation.output})
            for (const auto& range : known(side->launch->rank).read(*buffer))
                if (range.fact.kind == Kind::drifted) drifts_.clear();
}

void Layouts::message_begins(Posted& send, Posted& recv) {
    for (const auto& range : known(send.launch->rank).read(send.operation.input))
        if (range.fact.kind == Kind::drifted) drifts_.clear();
    Tracker::message_begins(send, recv);
}

}  // namespace lockstep::sim
