#include "sim/check/gradient_terms.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "src/device/monitor.hpp"

namespace lockstep::sim {

TermsTracker::TermsTracker(std::size_t ranks)
    : Tracker(ranks), nothing_(std::make_shared<const GradientTerms>()) {
    for (std::size_t rank = 0; rank < ranks; ++rank)
        own_.push_back(std::make_shared<const GradientTerms>(
            GradientTerms{{{static_cast<int>(rank), 1}}, {}}));
}

KnownTerms TermsTracker::terms_of(int rank, const Tensor& tensor) const {
    const Ranges ranges = known(rank).read(tensor);
    if (ranges.empty() || !cover(ranges, tensor.bytes())) return nullptr;
    const KnownTerms& first = ranges.front().fact;
    const bool alike = std::ranges::all_of(ranges, [&](const auto& range) {
        return range.fact == first ||
               (range.fact->ranks == first->ranks && range.fact->sums == first->sums);
    });
    return alike ? first : nullptr;
}

void TermsTracker::executing(int rank, const DeviceOperation& operation) {
    const Derivation& derivation = operation.derivation;
    switch (derivation.kind) {
        case Derivation::Kind::fill:
            if (derivation.factor == 0)
                return known(rank).set(*operation.writes[0], nothing_);
            return forget_results(rank, operation);
        case Derivation::Kind::copy:
            return copy_facts(rank, operation);
        case Derivation::Kind::scale:
            return;
        default:
            break;
    }
    if (is_backward_sum(operation)) return add_own(rank, operation);
    if (operation.is<ops::Add>()) return add(rank, operation);
    if (!operation.is<ops::ScaleByTensor>()) forget_results(rank, operation);
}

/// If backward adds more to a sum over ranks, the terms of the result are unknown.
void TermsTracker::add_own(int rank, const DeviceOperation& operation) {
    for (const Tensor* written : operation.writes)
        known(rank).change(*written, [&](KnownTerms& terms) {
            const bool is_own = terms == nothing_ || terms == own_[rank];
            terms = own_[rank];
            return is_own;
        });
}

namespace {

/// Adds up both counts. Equal terms of one rank, from two micro-batches, count once.
KnownTerms together(const KnownTerms& one, const KnownTerms& other) {
    if (one == other && one->sums.empty()) return one;
    auto sum = std::make_shared<GradientTerms>(*one);
    for (const auto& [rank, count] : other->ranks)
        sum->ranks[rank] += count;
    sum->sums.insert(sum->sums.end(), other->sums.begin(), other->sums.end());
    return sum;
}

}  // namespace

void TermsTracker::add(int rank, const DeviceOperation& operation) {
    const KnownTerms one = terms_of(rank, *operation.writes[0]);
    const KnownTerms other = terms_of(rank, *operation.reads.back());
    if (one == nullptr || other == nullptr) return forget_results(rank, operation);
    known(rank).set(*operation.writes[0], together(one, other));
}

void TermsTracker::collective_begins(const Team& team, const Meeting& meeting) {
    const CommOperation& first = meeting.first->operation;
    const VerbFacts verb = facts_of(first.verb);
    const bool sums = first.is_sum() && first.count > 0;
    if (!sums && !(verb.is_alike() && !verb.reduces && verb.moves()))
        return Tracker::collective_begins(team, meeting);
    const Ranges whole = sums ? summed(meeting) : moved(meeting);
    for (const Posted* side : holders_of(meeting)) {
        const Tensor& output = side->operation.output;
        const std::int64_t shift =
            verb.scatters() ? side->launch->member * output.bytes() : 0;
        Ranges own;
        for (auto range : whole) {
            range.begin = std::max<std::int64_t>(range.begin - shift, 0);
            range.end = std::min(range.end - shift, output.bytes());
            range.start -= shift;
            if (range.begin < range.end) own.push_back(std::move(range));
        }
        known(side->launch->rank).put(output, std::move(own));
    }
}

void TermsTracker::message_ended(Posted& send, Posted& recv) {
    copy_facts(send, recv);
}

namespace {

/// Walks through the ranges of a side's input, from the first byte to the last.
struct TermsWalk {
    Shadow<KnownTerms>::Ranges ranges;
    std::size_t next = 0;

    /// Returns the fact at `begin`; null if none is known. `begin` must never decrease.
    const KnownTerms* at(std::int64_t begin) {
        while (next < ranges.size() && ranges[next].end <= begin)
            ++next;
        const bool known = next < ranges.size() && ranges[next].begin <= begin;
        return known ? &ranges[next].fact : nullptr;
    }
};

}  // namespace

/// Returns the sum of all members' terms, for the bytes at which all of them are known.
TermsTracker::Ranges TermsTracker::summed(const Meeting& meeting) const {
    std::vector<TermsWalk> sides;
    std::set<std::int64_t> cuts;
    for (const Posted* side : meeting.arrived) {
        sides.push_back({known(side->launch->rank).read(side->operation.input)});
        if (sides.back().ranges.empty()) return {};
        for (const auto& range : sides.back().ranges) {
            cuts.insert(range.begin);
            cuts.insert(range.end);
        }
    }
    const Origin origin = origin_of(meeting);
    Ranges all;
    for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
        auto sum = std::make_shared<GradientTerms>();
        bool known = true;
        for (TermsWalk& side : sides) {
            const KnownTerms* const terms = side.at(*cut);
            known = known && terms != nullptr;
            if (!known) break;
            if (sum->sums.empty()) sum->sums = (*terms)->sums;
            for (const auto& [rank, count] : (*terms)->ranks)
                sum->ranks[rank] += count;
        }
        if (!known) continue;
        sum->sums.push_back(origin);
        all.push_back({*cut, *std::next(cut), *cut, std::move(sum)});
    }
    return all;
}

namespace {

/// Returns the ranks whose terms `one` has and `other` lacks.
std::vector<int> lacking(const GradientTerms& one, const GradientTerms& other) {
    std::vector<int> ranks;
    for (const auto& [rank, count] : one.ranks)
        if (!other.ranks.contains(rank)) ranks.push_back(rank);
    return ranks;
}

/// Returns the last sum that is in `one` and not in `other`; null if there is none.
const CollectiveOrigin* last_sum_of(const GradientTerms& one,
                                    const GradientTerms& other) {
    const auto is_new = [&](const Origin& sum) {
        return std::ranges::none_of(other.sums, [&](const Origin& known) {
            return known->team == sum->team && known->sequence == sum->sequence;
        });
    };
    const auto last = std::find_if(one.sums.rbegin(), one.sums.rend(), is_new);
    return last == one.sums.rend() ? nullptr : last->get();
}

/// Returns "the gradient on ranks 12, 14 lacks the terms of ranks 0, 2"; empty if `one`
/// has all terms that `other` has.
std::string lack_text(const HeldTerms& one, const HeldTerms& other) {
    const std::vector<int> ranks = lacking(*other.terms, *one.terms);
    return ranks.empty() ? ""
                         : fmt::format("the gradient on {} lacks the terms of {}",
                                       ranks_text(one.ranks), ranks_text(ranks));
}

/// Returns ", which all_reduce(…) of tied at train.cpp:12 has added on ranks 8, 10": the
/// last sum of `one` that `other` lacks.
std::string sum_text(const HeldTerms& one, const HeldTerms& other) {
    const CollectiveOrigin* sum = last_sum_of(*one.terms, *other.terms);
    return sum == nullptr ? ""
                          : fmt::format(", which {} has added on {}",
                                        sum->text_with_line(), ranks_text(one.ranks));
}

}  // namespace

std::string terms_text(const HeldTerms& usual, const HeldTerms& odd) {
    if (usual.terms == nullptr || odd.terms == nullptr) return "";
    // Before any sum, each gradient has only its rank's own terms, as it should.
    if (usual.terms->sums.empty() && odd.terms->sums.empty()) return "";
    const std::string of_odd = lack_text(odd, usual), of_usual = lack_text(usual, odd);
    if (!of_odd.empty() && !of_usual.empty()) return of_odd + ", and " + of_usual;
    if (!of_odd.empty()) return of_odd + sum_text(usual, odd);
    if (!of_usual.empty()) return of_usual + sum_text(odd, usual);
    const auto times = [](int count) {
        return count == 1 ? std::string("once") : fmt::format("{} times", count);
    };
    for (const auto& [rank, count] : odd.terms->ranks)
        if (const int usually = usual.terms->ranks.at(rank); usually != count)
            return fmt::format(
                "the gradient on {} has the terms of rank {} {}, but the gradient on {} "
                "has them {}",
                ranks_text(odd.ranks), rank, times(count), ranks_text(usual.ranks),
                times(usually));
    return "";
}

}  // namespace lockstep::sim
