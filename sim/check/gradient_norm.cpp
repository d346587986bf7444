// Checks norms of a model's gradients, from which clip factors are made. Each rank may
// hold only a part of the gradients.

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/check/check.hpp"
#include "sim/check/layouts.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/shadow.hpp"
#include "sim/check/tensors.hpp"
#include "sim/engine.hpp"
#include "src/core/part.hpp"

namespace lockstep::sim {

namespace {

/// A piece of a gradient that a rank holds, by the name of its parameter: elements
/// [begin, end) of the `all` elements that have this name on the rank. `part` says which
/// part of the parameter these elements are.
struct Held {
    int rank = 0;
    std::string name;
    std::string part;  ///< empty if the parameter is whole or its part is unknown
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t all = 0;

    auto operator<=>(const Held&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Returns the pieces of gradients in the tensor: one if it is within one gradient,
/// several if it is a range of a flat buffer, none if nothing there has a name.
std::vector<Held> held_by(int rank, const Tensor& gradient) {
    const std::int64_t bytes = bytes_of(gradient.dtype());
    const std::int64_t first = gradient.offset_bytes();
    const std::int64_t last = first + gradient.bytes();
    std::vector<Held> all;
    const auto add = [&](const Storage::Label& range) {
        const std::int64_t begin = std::max(first, range.begin);
        const std::int64_t end = std::min(last, range.begin + range.bytes);
        if (begin >= end) return;
        Held held{rank,
                  range.name,
                  range.part,
                  (begin - range.begin) / bytes,
                  (end - range.begin) / bytes,
                  range.bytes / bytes};
        // A norm need not count padding.
        if (range.part == kPaddingAlone) held.end = held.begin;
        all.push_back(std::move(held));
    };
    if (const Storage::Label* range = gradient.labelled())
        add(*range);
    else
        for (const Storage::Label& each : gradient.storage()->labels)
            add(each);
    return all;
}

/// How often a sum of squares counts each piece.
using Terms = std::map<Held, int>;

/// A known fact about a value. The value is the sum of the squares of `terms`, a clip
/// factor made from such a sum, or a scaled gradient. `clip` is the number of the clip
/// that made the factor or scaled the gradient.
struct NormFact {
    std::shared_ptr<const Terms> terms;
    std::int64_t clip = -1;
};

/// Finds F22 and F23 in gradient norms. Follows sums of squares from gradients (by name)
/// through sums and reductions to clip_factor, and to the gradients that this factor
/// scales. The n-th clips of all ranks belong together: they scale the gradients of one
/// model. Each gradient must count once in every rank's norm, even if ranks have declared
/// it a replica (declare_replicas).
///
/// A sum is not followed if it is scaled, goes through the host or counts a tensor
/// without a name; then the clip is not checked. Ranks that share only the communicator
/// world are assumed to clip different models, unless they have declared replicas over
/// world, or scale shards of a sum over world. Ranks that clip in parts leave out other
/// ranks' gradients on purpose.
class GradientNormWatcher final : public Tracker<NormFact>, public Clips {
  public:
    GradientNormWatcher(Engine& engine, const Layouts& layouts)
        : Tracker(engine.ranks().size()),
          engine_(engine),
          layouts_(layouts),
          clips_(engine.ranks().size(), 0) {}

    void declared(const Team& team, int member, const Tensor& tensor,
                  const std::string& name, SourceLine at) override;
    void executing(int rank, const DeviceOperation& operation) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void message_ended(Posted& send, Posted& recv) override;
    void quiet() override;
    void run_ended() override;

    std::int64_t clip_of(int rank, const Tensor& gradient) const override;
    std::optional<Diagnosis> explain_unlike(int one, int other,
                                            std::int64_t clip) const override;

  private:
    /// The ranks over which a gradient was summed, if that is known.
    struct Reduced {
        const Team* dealt = nullptr;  ///< each of its ranks has a part of the sum
        const Team* alike = nullptr;  ///< all of its ranks have the whole sum
    };
    /// One rank's norm, and the line that clips with it.
    struct Claim {
        std::shared_ptr<const Terms> terms;
        SourceLine at;
        /// The rank's previous or next clip scales other gradients, for example if the
        /// rank clips layer by layer.
        bool is_in_parts = false;
    };
    /// The n-th clips of all ranks, for one n.
    struct Clip {
        std::map<int, Claim> claims;
        std::map<Held, Reduced> scaled;

        bool is_in_parts(int rank) const {
            const auto claim = claims.find(rank);
            return claim != claims.end() && claim->second.is_in_parts;
        }
    };

    /// Returns null if nothing is known.
    std::shared_ptr<const Terms> terms_of(int rank, const Tensor& tensor) const;
    bool work_together(int a, int b) const;
    void add_square(int rank, const Tensor& sum, const Tensor& gradient);
    void add(int rank, const Tensor& sum, const Tensor& term);
    void note_clip(int rank, const std::shared_ptr<const Terms>& terms, SourceLine at);
    bool note_scaled(int rank, const DeviceOperation& operation);
    bool is_done(std::int64_t number) const;
    std::optional<Diagnosis> mistake_in(const Clip& clip) const;
    void evaluate(const Clip& clip) const;
    std::set<int> ranks_with(const Held& held, const Team* summed) const;
    Diagnosis explain_missing(const Clip& clip, const Held& held,
                              const std::set<int>& holders, int rank) const;
    Diagnosis explain_many(const Held& held, const std::set<int>& holders, int count,
                           int rank, const Claim& claim) const;
    std::string line_between(int a, int b, const std::string& label = "") const;

    const Engine& engine_;
    const Layouts& layouts_;
    std::vector<std::int64_t> clips_;  ///< how many clips each rank has made
    std::map<std::int64_t, Clip> open_;
    /// By name: the teams that have declared a tensor, and the number of its elements.
    /// Shards of the tensor may be declared later, with labels that name their parts.
    std::map<std::string, std::map<const Team*, std::int64_t>> declared_;
};

void GradientNormWatcher::declared(const Team& team, int /*member*/, const Tensor& tensor,
                                   const std::string& name, SourceLine /*at*/) {
    if (team.size() > 1) declared_[name].emplace(&team, tensor.elements());
}

std::shared_ptr<const Terms> GradientNormWatcher::terms_of(int rank,
                                                           const Tensor& tensor) const {
    const auto* range = known(rank).whole(tensor);
    return range ? range->fact.terms : nullptr;
}

void GradientNormWatcher::add_square(int rank, const Tensor& sum,
                                     const Tensor& gradient) {
    const auto before = terms_of(rank, sum);
    const std::vector<Held> counted = held_by(rank, gradient);
    if (!before || counted.empty()) return known(rank).forget(sum);
    auto terms = std::make_shared<Terms>(*before);
    for (const Held& held : counted)
        ++(*terms)[held];
    known(rank).set(sum, {std::move(terms)});
}

void GradientNormWatcher::add(int rank, const Tensor& sum, const Tensor& term) {
    const auto before = terms_of(rank, sum), more = terms_of(rank, term);
    if (!before || !more) return known(rank).forget(sum);
    auto terms = std::make_shared<Terms>(*before);
    for (const auto& [held, count] : *more)
        (*terms)[held] += count;
    known(rank).set(sum, {std::move(terms)});
}

/// Returns whether two norms count the same gradients of a rank.
bool count_alike(int rank, const Terms& one, const Terms& other) {
    const auto gradients_of = [rank](const Terms& terms) {
        std::set<Held> own;
        for (const auto& [held, count] : terms)
            if (held.rank == rank) own.insert(held);
        return own;
    };
    return gradients_of(one) == gradients_of(other);
}

/// Notes a rank's clip, and whether it and the previous clip count the same gradients.
void GradientNormWatcher::note_clip(int rank, const std::shared_ptr<const Terms>& terms,
                                    SourceLine at) {
    const std::int64_t number = clips_[rank] - 1;
    Claim& claim = open_[number].claims[rank] = {terms, at};
    const auto before = open_.find(number - 1);
    if (before == open_.end()) return;
    const auto last = before->second.claims.find(rank);
    if (last == before->second.claims.end() ||
        count_alike(rank, *last->second.terms, *terms))
        return;
    claim.is_in_parts = last->second.is_in_parts = true;
}

/// If the operation scales a gradient by a clip's factor, notes the gradient and the
/// ranks over which it was summed, and returns true.
bool GradientNormWatcher::note_scaled(int rank, const DeviceOperation& operation) {
    const auto* factor = known(rank).whole(*operation.reads.back());
    const auto clip = open_.find(factor ? factor->fact.clip : -1);
    if (clip == open_.end()) return false;
    const Tensor& gradient = *operation.writes[0];
    const Layout layout = layouts_.layout_of(rank, gradient);
    Reduced reduced;
    if (is_reduced(layout)) reduced.alike = layout.team();
    if (layout.kind == Layout::Kind::sharded && layout.reduced)
        reduced.dealt = layout.team();
    for (const Held& held : held_by(rank, gradient))
        clip->second.scaled.emplace(held, reduced);
    known(rank).set(gradient, {nullptr, clip->first});
    return true;
}

void GradientNormWatcher::executing(int rank, const DeviceOperation& operation) {
    if (operation.is<ops::SumOfSquares>())
        return add_square(rank, *operation.writes[0], *operation.reads[0]);
    const bool is_one =
        operation.writes.size() == 1 && operation.writes[0]->elements() == 1;
    if (is_one && operation.derivation.kind == Derivation::Kind::fill &&
        operation.derivation.factor == 0)
        return known(rank).set(*operation.writes[0], {std::make_shared<Terms>()});
    if (operation.is<ops::ClipFactor>()) {
        const std::int64_t number = clips_[rank]++;
        const auto terms = terms_of(rank, *operation.reads[0]);
        known(rank).forget(*operation.writes[0]);
        if (!terms) return;
        note_clip(rank, terms, operation.at);
        return known(rank).set(*operation.writes[0], {terms, number});
    }
    if (operation.is<ops::ScaleByTensor>() && note_scaled(rank, operation)) return;
    if (is_one && operation.is<ops::Add>() && operation.derivation.factor == 1)
        return add(rank, *operation.writes[0], *operation.reads.back());
    if (is_one && operation.is<ops::Copy>()) return copy_facts(rank, operation);
    forget_results(rank, operation);
}

void GradientNormWatcher::collective_begins(const Team& team, const Meeting& meeting) {
    const CommOperation& first = meeting.first->operation;
    if (!first.is_sum() || first.reduction != Reduction::sum || first.count != 1)
        return Tracker::collective_begins(team, meeting);
    auto all = std::make_shared<Terms>();
    for (const Posted* side : meeting.arrived) {
        const auto terms = terms_of(side->launch->rank, side->operation.input);
        if (!terms) return Tracker::collective_begins(team, meeting);
        for (const auto& [held, count] : *terms)
            (*all)[held] += count;
    }
    for (const Posted* side : holders_of(meeting))
        known(side->launch->rank).set(side->operation.output, {all});
}

void GradientNormWatcher::message_ended(Posted& send, Posted& recv) {
    copy_facts(send, recv);
}

/// Returns whether all ranks have begun the next clip: then clip `number` is complete.
bool GradientNormWatcher::is_done(std::int64_t number) const {
    return std::all_of(clips_.begin(), clips_.end(),
                       [&](std::int64_t clips) { return clips > number + 1; });
}

void GradientNormWatcher::quiet() {
    while (!open_.empty() && is_done(open_.begin()->first)) {
        evaluate(open_.begin()->second);
        open_.erase(open_.begin());
    }
}

void GradientNormWatcher::run_ended() {
    for (const auto& [number, clip] : open_)
        evaluate(clip);
    open_.clear();
}

/// Returns the ranks that hold the same gradient: the ranks that summed it, and all ranks
/// of any team that has declared it, if one of the team's ranks holds it. A team that has
/// declared a larger tensor counts only if the piece's label names its part.
std::set<int> GradientNormWatcher::ranks_with(const Held& held,
                                              const Team* summed) const {
    std::set<int> all{held.rank};
    if (summed != nullptr) all.insert(summed->ranks.begin(), summed->ranks.end());
    const auto teams = declared_.find(held.name);
    if (teams == declared_.end()) return all;
    for (bool grows = true; grows;) {
        grows = false;
        for (const auto& [team, elements] : teams->second) {
            const bool has_it = elements == held.all || !held.part.empty();
            if (!has_it || std::ranges::none_of(
                               team->ranks, [&](int rank) { return all.contains(rank); }))
                continue;
            for (const int rank : team->ranks)
                grows = all.insert(rank).second || grows;
        }
    }
    return all;
}

bool GradientNormWatcher::work_together(int a, int b) const {
    const Team* const world = engine_.teams().front().get();
    const auto is_declared = [world](const auto& name) {
        return name.second.contains(world);
    };
    return a == b || std::ranges::any_of(declared_, is_declared) ||
           std::ranges::any_of(engine_.teams(), [&](const auto& team) {
               return team.get() != world && team->has(a) && team->has(b);
           });
}

/// A norm's terms by the names of their gradients.
using TermsByName = std::map<std::string, std::vector<Terms::value_type>>;

TermsByName by_name(const Terms& terms) {
    TermsByName all;
    for (const auto& term : terms)
        all[term.first.name].push_back(term);
    return all;
}

/// Returns how often the norm counts an element of `held` over all ranks that hold it:
/// the least and the largest number.
std::pair<int, int> times_counted(const TermsByName& terms, const Held& held,
                                  const std::set<int>& holders) {
    std::map<std::int64_t, int> changes{{held.begin, 0}, {held.end, 0}};
    const auto of_name = terms.find(held.name);
    if (of_name == terms.end()) return {0, 0};
    for (const auto& [term, count] : of_name->second) {
        const std::int64_t begin = std::max(term.begin, held.begin);
        const std::int64_t end = std::min(term.end, held.end);
        const bool is_same = term.part == held.part && term.all == held.all;
        if (!is_same || begin >= end || !holders.contains(term.rank)) continue;
        changes[begin] += count;
        changes[end] -= count;
    }
    int times = 0;
    std::pair<int, int> bounds{std::numeric_limits<int>::max(), 0};
    for (const auto& [at, change] : changes) {
        times += change;
        if (at == held.end) break;
        bounds = {std::min(bounds.first, times), std::max(bounds.second, times)};
    }
    return bounds;
}

std::optional<Diagnosis> GradientNormWatcher::mistake_in(const Clip& clip) const {
    std::map<Held, std::set<int>> holders_by_held;
    for (const auto& [held, reduced] : clip.scaled)
        holders_by_held.emplace(held, ranks_with(held, reduced.alike));
    // Ranks that clip by the result of one reduction have the same norm.
    std::set<const Terms*> looked_at;
    for (const auto& [rank, claim] : clip.claims) {
        if (!looked_at.insert(claim.terms.get()).second) continue;
        const TermsByName terms = by_name(*claim.terms);
        for (const auto& [held, holders] : holders_by_held) {
            const auto [least, most] = times_counted(terms, held, holders);
            const Team* const dealt = clip.scaled.at(held).dealt;
            if (most > 1) return explain_many(held, holders, most, rank, claim);
            const bool is_own_affair =
                held.rank != rank && (claim.is_in_parts || clip.is_in_parts(held.rank) ||
                                      (!(dealt != nullptr && dealt->has(rank)) &&
                                       !work_together(rank, held.rank)));
            if (least == 0 && !is_own_affair)
                return explain_missing(clip, held, holders, rank);
        }
    }
    return std::nullopt;
}

void GradientNormWatcher::evaluate(const Clip& clip) const {
    if (std::optional<Diagnosis> found = mistake_in(clip)) report(std::move(*found));
}

std::int64_t GradientNormWatcher::clip_of(int rank, const Tensor& gradient) const {
    const auto* const range = known(rank).whole(gradient);
    return range == nullptr ? -1 : range->fact.clip;
}

std::optional<Diagnosis> GradientNormWatcher::explain_unlike(int one, int other,
                                                             std::int64_t clip) const {
    const auto all = open_.find(clip);
    if (all == open_.end()) return std::nullopt;
    const auto& claims = all->second.claims;
    const auto first = claims.find(one), second = claims.find(other);
    if (first == claims.end() || second == claims.end() ||
        *first->second.terms == *second->second.terms)
        return std::nullopt;
    // Compares only these two ranks, because other ranks may not have reached this clip.
    Clip both;
    both.claims = {*first, *second};
    for (const auto& [held, reduced] : all->second.scaled)
        if (held.rank == one || held.rank == other) both.scaled.emplace(held, reduced);
    return mistake_in(both);
}

/// Returns the name of the smallest communicator of both ranks; empty if there is none.
/// Prefers communicators that have declared `label`.
std::string GradientNormWatcher::line_between(int a, int b,
                                              const std::string& label) const {
    const Team* best = nullptr;
    const auto look = [&](const Team* team) {
        if (team->has(a) && team->has(b) &&
            (best == nullptr || team->size() < best->size()))
            best = team;
    };
    if (const auto teams = declared_.find(label); teams != declared_.end())
        for (const auto& [team, elements] : teams->second)
            look(team);
    if (best == nullptr)
        for (const auto& team : engine_.teams())
            look(team.get());
    return best ? best->name : "";
}

/// Explains that a rank's norm leaves out an element of a gradient that its clip scales.
Diagnosis GradientNormWatcher::explain_missing(const Clip& clip, const Held& held,
                                               const std::set<int>& holders,
                                               int rank) const {
    // The rank whose squares are missing. It holds another part of the model or, if
    // `rank` holds the same part, the copy that the norms count.
    int partner = held.rank;
    if (holders.contains(rank))
        for (const auto& [other, claim] : clip.claims)
            for (const auto& [term, count] : *claim.terms)
                if (partner == held.rank && term.rank != rank && term.name == held.name &&
                    holders.contains(term.rank))
                    partner = term.rank;
    const bool is_copy = holders.contains(rank) && partner != rank;
    const Claim& claim = clip.claims.at(rank);
    const auto there = clip.claims.find(partner);
    const std::string line = partner == rank ? "" : line_between(rank, partner);
    Diagnosis diagnosis = diagnosis_of("F23");
    diagnosis.title = "a gradient is missing in a norm";
    diagnosis.sentence = fmt::format("rank {} clips at {} by a norm that leaves out ",
                                     rank, claim.at.text());
    if (partner == rank)
        diagnosis.sentence +=
            fmt::format("its own gradient of {}, which the same clip scales", held.name);
    else if (is_copy)
        diagnosis.sentence += fmt::format(
            "the gradient of {}: the copy on rank {} counts, but the squares are not "
            "added up over {}",
            held.name, partner, line);
    else
        diagnosis.sentence += fmt::format(
            "rank {}'s gradient of {}, which the same clip scales: the two ranks hold "
            "different parts of the model along {}, but their squares are not added up "
            "over it",
            partner, held.name, line);
    if (partner == rank)
        diagnosis.cause =
            "A norm of all gradients needs the sum of squares of each gradient; that of "
            "this one is missing.";
    else
        diagnosis.cause = fmt::format(
            "A norm of all gradients is one number for all ranks of the model: also sum "
            "the squares over {}.{}",
            line,
            is_copy ? ""
                    : " If the two ranks hold the same numbers, declare them as replicas "
                      "(declare_replicas); they then count once.");
    diagnosis.parties = {party({rank}, "clip_factor", claim.at, "its norm")};
    if (partner != rank && there != clip.claims.end())
        diagnosis.parties.push_back(
            party({partner}, "clip_factor", there->second.at, "left out"));
    return diagnosis;
}

Diagnosis GradientNormWatcher::explain_many(const Held& held,
                                            const std::set<int>& holders, int count,
                                            int rank, const Claim& claim) const {
    const std::string& label = held.name;
    std::vector<int> counted;
    for (const int holder : holders)
        if (std::ranges::any_of(*claim.terms, [&](const auto& term) {
                const Held& of = term.first;  // other ranks may add other parts of it
                return of.rank == holder && of.name == label && of.part == held.part &&
                       of.begin < held.end && held.begin < of.end;
            }))
            counted.push_back(holder);
    Diagnosis diagnosis = diagnosis_of("F22");
    diagnosis.title = "a gradient counts more than once in a norm";
    diagnosis.sentence = fmt::format(
        "rank {} clips at {} by a norm in which the gradient of {} counts {} times: {} "
        "{} it",
        rank, claim.at.text(), label, count, ranks_text(counted),
        counted.size() == 1 ? "adds" : "add");
    diagnosis.cause =
        counted.size() == 1
            ? std::string("Its sum of squares is added, or reduced, more than once.")
            : fmt::format(
                  "These ranks hold the same gradient along {}: only one of them may add "
                  "its squares.",
                  line_between(counted[0], counted[1], label));
    diagnosis.parties = {party({rank}, "clip_factor", claim.at, "its norm")};
    return diagnosis;
}

}  // namespace

NormWatcher watch_gradient_norms(Engine& engine, const Layouts& layouts) {
    auto watcher = std::make_unique<GradientNormWatcher>(engine, layouts);
    const Clips* const clips = watcher.get();
    return {std::move(watcher), clips};
}

}  // namespace lockstep::sim
