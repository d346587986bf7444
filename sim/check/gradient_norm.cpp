// The norm of a model's gradients, which several ranks hold together: what a clip factor
// is made of.

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/check/check.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/shadow.hpp"
#include "sim/check/tensors.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

/// A gradient, by the name of its parameter, as a rank holds it: all of what has that
/// name there, or a range of it. In elements.
struct Held {
    int rank = 0;
    std::string name;
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::int64_t all = 0;

    auto operator<=>(const Held&) const = default;
    /// The same of another rank.
    Held on(int other) const { return {other, name, begin, count, all}; }
};

Held held_by(int rank, const Tensor& gradient) {
    const Storage::Label& range = *gradient.labelled();
    const std::int64_t bytes = bytes_of(gradient.dtype());
    return {rank, range.name, (gradient.offset_bytes() - range.begin) / bytes,
            gradient.elements(), range.bytes / bytes};
}

/// How often a sum of squares counts each.
using Terms = std::map<Held, int>;

/// A watcher knows this of one number: it is a sum of squares, or, from `clip` on, the
/// factor that its rank's clip of that number made of one.
struct NormFact {
    std::shared_ptr<const Terms> terms;
    std::int64_t clip = -1;
};

/// F22 and F23 of gradient norms: follows sums of squares from gradients, by their names,
/// through sums and reductions to clip_factor and to the gradients that it scales. The
/// gradients that the ranks' clips of one number scale are one model: each has to count
/// once in every rank's norm, and once alone if ranks have declared it a replica
/// (declare_replicas). A sum that is scaled, goes through the host or counts what has no
/// name is not followed, and a clip by it claims nothing. Ranks that share no
/// communicator but world clip models of their own, and a rank that clips several times
/// for one update leaves out on purpose what other ranks hold.
class GradientNormWatcher final : public Tracker<NormFact> {
  public:
    explicit GradientNormWatcher(Engine& engine)
        : Tracker(engine.ranks().size()),
          engine_(engine),
          clips_(engine.ranks().size(), 0),
          unused_(engine.ranks().size()) {}

    void declared(const Team& team, int member, const Tensor& tensor,
                  const std::string& name, SourceLine at) override;
    void executing(int rank, const DeviceOperation& operation) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void message_ended(Posted& send, Posted& recv) override;
    void quiet() override;
    void run_ended() override;

  private:
    /// One rank's norm, and where it clips with it.
    struct Claim {
        std::shared_ptr<const Terms> terms;
        SourceLine at;
        bool is_of_several = false;  ///< clips of its rank for one update
    };
    /// All ranks' clips of one number.
    struct Clip {
        std::map<int, Claim> claims;
        std::set<Held> scaled;
    };

    /// Null if nothing is known.
    std::shared_ptr<const Terms> terms_of(int rank, const Tensor& tensor) const;
    bool work_together(int a, int b) const;
    void add_square(int rank, const Tensor& sum, const Tensor& gradient);
    void add(int rank, const Tensor& sum, const Tensor& term);
    void note_clip(int rank, std::int64_t number);
    bool is_done(std::int64_t number) const;
    void evaluate(const Clip& clip) const;
    std::set<Held> replicas_of(const Held& held) const;
    Diagnosis explain(const Held& held, const std::set<Held>& replicas, int count,
                      int rank, const Claim& claim) const;
    std::string line_between(int a, int b, const std::string& label) const;

    const Engine& engine_;
    std::vector<std::int64_t> clips_;                ///< of each rank, so far
    std::vector<std::vector<std::int64_t>> unused_;  ///< of these, since its last update
    std::map<std::int64_t, Clip> open_;
    /// By name: who has declared a tensor of so many elements.
    std::map<std::string, std::map<const Team*, std::int64_t>> declared_;
};

void GradientNormWatcher::declared(const Team& team, int /*member*/, const Tensor& tensor,
                                   const std::string& name, SourceLine /*at*/) {
    if (team.size() > 1) declared_[name][&team] = tensor.elements();
}

std::shared_ptr<const Terms> GradientNormWatcher::terms_of(int rank,
                                                           const Tensor& tensor) const {
    const auto* range = known(rank).whole(tensor);
    return range ? range->fact.terms : nullptr;
}

void GradientNormWatcher::add_square(int rank, const Tensor& sum,
                                     const Tensor& gradient) {
    const auto before = terms_of(rank, sum);
    if (!before || gradient.label().empty()) return known(rank).forget(sum);
    auto terms = std::make_shared<Terms>(*before);
    ++(*terms)[held_by(rank, gradient)];
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

/// Each layer may be clipped by a norm of its own.
void GradientNormWatcher::note_clip(int rank, std::int64_t number) {
    unused_[rank].push_back(number);
    if (unused_[rank].size() < 2) return;
    for (const std::int64_t several : unused_[rank])
        if (const auto clip = open_.find(several); clip != open_.end())
            clip->second.claims.at(rank).is_of_several = true;
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
        if (!terms || terms->empty()) return;
        open_[number].claims[rank] = {terms, operation.at};
        note_clip(rank, number);
        return known(rank).set(*operation.writes[0], {terms, number});
    }
    if (is_update(operation)) unused_[rank].clear();
    if (operation.is<ops::ScaleByTensor>()) {
        const auto* factor = known(rank).whole(*operation.reads.back());
        const Tensor& scaled = *operation.writes[0];
        if (factor && factor->fact.clip >= 0 && scaled.labelled() != nullptr)
            open_[factor->fact.clip].scaled.insert(held_by(rank, scaled));
    }
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

/// Returns whether all ranks have begun with the next: then all gradients are scaled.
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

/// Returns who holds the same as `held`: along each line that has declared it, and along
/// the lines of those. A shard in memory of its own, which is smaller than what they
/// declared, nobody else holds.
std::set<Held> GradientNormWatcher::replicas_of(const Held& held) const {
    std::set<Held> all{held};
    const auto teams = declared_.find(held.name);
    if (teams == declared_.end()) return all;
    for (bool grows = true; grows;) {
        grows = false;
        for (const auto& [team, elements] : teams->second) {
            if (elements != held.all) continue;
            const bool meets =
                std::any_of(team->ranks.begin(), team->ranks.end(),
                            [&](int rank) { return all.contains(held.on(rank)); });
            if (!meets) continue;
            for (const int rank : team->ranks)
                grows = all.insert(held.on(rank)).second || grows;
        }
    }
    return all;
}

bool GradientNormWatcher::work_together(int a, int b) const {
    return a == b || std::any_of(engine_.teams().begin(), engine_.teams().end(),
                                 [&](const auto& team) {
                                     return team->id != engine_.teams().front()->id &&
                                            team->has(a) && team->has(b);
                                 });
}

void GradientNormWatcher::evaluate(const Clip& clip) const {
    std::map<Held, std::set<Held>> replicas_by_held;
    for (const Held& held : clip.scaled)
        replicas_by_held.emplace(held, replicas_of(held));
    // Ranks that clip by one reduction's result have one norm.
    std::set<const Terms*> looked_at;
    for (const auto& [rank, claim] : clip.claims) {
        if (!looked_at.insert(claim.terms.get()).second) continue;
        for (const auto& [held, replicas] : replicas_by_held) {
            int count = 0;
            for (const Held& replica : replicas) {
                const auto found = claim.terms->find(replica);
                if (found != claim.terms->end()) count += found->second;
            }
            if (count == 0 && held.rank != rank &&
                (claim.is_of_several || !work_together(rank, held.rank)))
                continue;
            if (count != 1) throw FaultError(explain(held, replicas, count, rank, claim));
        }
    }
}

/// The name of the smallest communicator that both ranks are in; of those that have
/// declared the parameter if there is one. Empty if there is none.
std::string GradientNormWatcher::line_between(int a, int b,
                                              const std::string& label) const {
    const Team* best = nullptr;
    const auto look = [&](const Team* team) {
        const auto has = [&](int rank) {
            return std::find(team->ranks.begin(), team->ranks.end(), rank) !=
                   team->ranks.end();
        };
        if (has(a) && has(b) && (best == nullptr || team->size() < best->size()))
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

Diagnosis GradientNormWatcher::explain(const Held& held, const std::set<Held>& replicas,
                                       int count, int rank, const Claim& claim) const {
    const std::string& label = held.name;
    if (count == 0) {
        Diagnosis diagnosis = diagnosis_of("F23");
        diagnosis.title = "a gradient is missing in a norm";
        diagnosis.sentence = fmt::format(
            "rank {} clips at {} by a norm that leaves out rank {}'s gradient of {}, "
            "which the same clip scales there",
            rank, claim.at.text(), held.rank, label);
        if (held.rank != rank)
            diagnosis.cause = fmt::format(
                "The sum of squares is to be added up over {}, too: ranks {} and {} hold "
                "different parts of the model along it.",
                line_between(rank, held.rank, label), rank, held.rank);
        else
            diagnosis.cause =
                "A norm of all gradients has a sum of squares of each: this one's is not "
                "in it.";
        diagnosis.parties = {party({rank}, "clip_factor", claim.at, "its norm")};
        return diagnosis;
    }
    std::vector<int> counted;
    for (const Held& replica : replicas)
        if (claim.terms->contains(replica)) counted.push_back(replica.rank);
    Diagnosis diagnosis = diagnosis_of("F22");
    diagnosis.title = "a gradient counts more than once in a norm";
    diagnosis.sentence = fmt::format(
        "rank {} clips at {} by a norm in which the gradient of {} counts {} times, as "
        "{} {} it",
        rank, claim.at.text(), label, count, ranks_text(counted),
        counted.size() == 1 ? "adds" : "add");
    diagnosis.cause =
        counted.size() == 1
            ? std::string("Its sum of squares is added, or reduced, more than once.")
            : fmt::format(
                  "These ranks hold it alike along {}: only one of them may add "
                  "its square.",
                  line_between(counted[0], counted[1], label));
    diagnosis.parties = {party({rank}, "clip_factor", claim.at, "its norm")};
    return diagnosis;
}

}  // namespace

std::unique_ptr<Watcher> watch_gradient_norms(Engine& engine) {
    return std::make_unique<GradientNormWatcher>(engine);
}

}  // namespace lockstep::sim
