// How the values lie that ranks make together: by collectives, and messages.

#include <algorithm>

#include "sim/check/layout_text.hpp"
#include "sim/check/layouts.hpp"

namespace lockstep::sim {

namespace {

using Kind = Layout::Kind;
using Ranges = LayoutRanges;

/// Zeros stay zeros, however often they are summed. Without numbers nobody knows.
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
    const Origin origin = origin_of(team, meeting);
    Layout result;
    result.origin = origin;
    result.identity = identity_of(*origin);
    if (verb.reduces) {
        result = reduction_of(team, meeting, origin);
    } else if (verb.is_alike() && verb.gathers()) {
        result = gathering_of(meeting, origin);
    } else if (verb.is_alike()) {
        const Posted& root = *meeting.arrived[first.peer];
        const Layout sent = of(root.batch->rank, root.operation.input);
        result.kind = Kind::replicated;
        if (is_reduced(sent) && contains(*sent.team(), team)) result = sent;
    } else if (verb.scatters()) {
        result.kind = Kind::sharded;
    }
    for (const Posted* side : meeting.arrived) {
        const Tensor& output = side->operation.output;
        if (!output || !first.leaves_result(side->batch->member)) continue;
        if (result.kind == Kind::sharded) result.index = side->batch->member;
        if (result.kind == Kind::unknown)
            known(side->batch->rank).forget(output);
        else
            known(side->batch->rank).set(output, result);
    }
}

/// Summing what all of them have had from one sum, or that and more.
Layout Layouts::reduction_of(const Team& team, const Meeting& meeting,
                             const Origin& origin) const {
    Layout result;
    result.origin = origin;
    result.identity = identity_of(*origin);
    result.reduced =
        origin->reduction == Reduction::sum || origin->reduction == Reduction::mean;
    result.kind = facts_of(origin->verb).scatters() ? Kind::sharded : Kind::replicated;
    if (origin->reduction != Reduction::sum || team.size() < 2 || origin->count == 0)
        return result;
    check_shards(team, meeting, origin);

    const Posted& one = *meeting.arrived.front();
    const Ranges ranges = known(one.batch->rank).read(one.operation.input);
    const Layout* const layout =
        all_of_one(ranges, one.operation.input, [&](const Layout& part) {
            const bool again =
                part.kind == Kind::mixed ||
                (is_reduced(part) && !is_one(part.multiplier * team.size()));
            return again && contains(*part.team(), team);
        });
    if (layout == nullptr) return result;
    for (const Posted* side : meeting.arrived) {
        const Ranges others = known(side->batch->rank).read(side->operation.input);
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

/// Each rank holds another part of the sum: adding the parts up makes no sense. A single
/// number a rank may be a count.
void Layouts::check_shards(const Team& team, const Meeting& meeting,
                           const Origin& origin) const {
    if (!is_floating(origin->dtype)) return;
    const Layout* first = nullptr;
    for (const Posted* side : meeting.arrived) {
        const auto* const range = known(side->batch->rank).whole(side->operation.input);
        const bool shard =
            range != nullptr && range->fact.kind == Kind::sharded &&
            range->fact.reduced && range->fact.origin->count > 1 &&
            same_ranks(*range->fact.team(), team) &&
            range->fact.team()->ranks[range->fact.index] == side->batch->rank &&
            (first == nullptr || first->identity == range->fact.identity);
        if (!shard) return;
        first = &range->fact;
    }
    if (may_be_zeros(meeting)) return;
    throw FaultError(explain_summed_shards(*first->origin, *origin));
}

/// Shards of one sum, gathered in order, are the whole sum.
Layout Layouts::gathering_of(const Meeting& meeting, const Origin& origin) const {
    Layout result;
    result.kind = Kind::replicated;
    result.origin = origin;
    result.identity = identity_of(*origin);
    const Layout* first = nullptr;
    for (const Posted* side : meeting.arrived) {
        const auto* const range = known(side->batch->rank).whole(side->operation.input);
        const bool part = range != nullptr && range->fact.kind == Kind::sharded &&
                          range->fact.reduced && is_one(range->fact.multiplier) &&
                          range->fact.index == side->batch->member &&
                          range->start == side->operation.input.offset_bytes() &&
                          range->fact.origin->count == origin->count &&
                          same_ranks(*range->fact.team(), *origin->team) &&
                          (first == nullptr || first->identity == range->fact.identity);
        if (!part) return result;
        first = &range->fact;
    }
    result.reduced = true;
    result.origin = first->origin;
    return result;
}

/// Who brings drifted parameters together, in whatever way, means them to drift.
void Layouts::forget_drifts(const Meeting& meeting) {
    for (const Posted* side : meeting.arrived)
        for (const Tensor* buffer : {&side->operation.input, &side->operation.output})
            for (const auto& range : known(side->batch->rank).read(*buffer))
                if (range.fact.kind == Kind::drifted) drifts_.clear();
}

void Layouts::message_begins(Posted& send, Posted& recv) {
    for (const auto& range : known(send.batch->rank).read(send.operation.input))
        if (range.fact.kind == Kind::drifted) drifts_.clear();
    known(recv.batch->rank).forget(recv.operation.output);
}

}  // namespace lockstep::sim
