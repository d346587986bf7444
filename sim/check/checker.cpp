// Answers the engine's questions with the functions of check.hpp. Also compares what
// programs pass to expect_replicated and declare_same.

#include <algorithm>

#include <fmt/format.h>

#include "sim/check/activity.hpp"
#include "sim/check/check.hpp"
#include "sim/check/gradient_terms.hpp"
#include "sim/check/layouts.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/rollcall.hpp"
#include "sim/engine.hpp"
#include "src/comm/expect.hpp"

namespace lockstep::sim {

void Watcher::report(Diagnosis diagnosis) const {
    if (engine_->options().unchecked.contains(diagnosis.fault)) return;
    const auto is_meant = [&](const Intended& meant) {
        return meant.fault == diagnosis.fault &&
               (meant.name.empty() ||
                diagnosis.sentence.find(meant.name) != std::string::npos);
    };
    for (const Diagnosis::Party& told : diagnosis.parties)
        for (const int rank : told.ranks)
            if (std::ranges::any_of(engine_->ranks()[rank]->report.intended, is_meant))
                return;
    if (can_be_intended(diagnosis.fault))
        diagnosis.cause +=
            fmt::format("{}If it is meant, say so: rank.intended(\"{}\", \"why\").",
                        diagnosis.cause.empty() ? "" : " ", diagnosis.fault);
    throw FaultError(std::move(diagnosis));
}

namespace {

/// Explains copies (expect_replicated) or read values (declare_same) that differ.
Diagnosis explain_copies(const Rollcall::Roll& roll,
                         const std::vector<Rollcall::Side>& sides) {
    const Rollcall::Claim& usual = sides[0].first();
    const FirstDifference difference = first_difference(roll, sides[1].first(), usual);
    std::vector<ReplicaSide> told;
    for (const Rollcall::Side& side : sides) {
        const Rollcall::Claim& claim = side.first();
        std::string value;
        if (difference.element.empty())
            value = fmt::format("{} {}", claim.shape.text(), name_of(claim.dtype));
        else
            value = &side == &sides[0] ? difference.usual
                                       : first_difference(roll, claim, usual).odd;
        told.push_back(
            {side.ranks(*roll.team), std::move(value), claim.at, claim.made_at});
    }
    return (usual.reads ? reads_differ : replicas_differ)(
        roll.team->name, roll.team->ranks, usual.name, told, difference.element,
        difference.differing);
}

/// Every rank has ended: throws FaultError if a rank lacks a call that other ranks made.
void require_all_expected(const Rollcall& rollcall) {
    const std::vector<const Rollcall::Roll*> rolls = rollcall.incomplete();
    if (rolls.empty()) return;
    const Rollcall::Roll& roll = *rolls.front();
    const Team& team = *roll.team;
    std::vector<int> callers;
    std::vector<int> absent = team.ranks;
    for (const Rollcall::Claim& claim : roll.claims) {
        callers.push_back(team.ranks[claim.member]);
        std::erase(absent, callers.back());
    }
    std::sort(callers.begin(), callers.end());
    const Rollcall::Claim& first = *std::min_element(
        roll.claims.begin(), roll.claims.end(),
        [](const auto& a, const auto& b) { return a.member < b.member; });
    const std::string call =
        fmt::format("{}({}) #{} of {}", first.call, first.name, roll.number, team.name);
    Diagnosis diagnosis = diagnosis_on(team, "F07");
    diagnosis.sentence = fmt::format(
        "{} {} {} at {}, but {} {} ended without this call: every rank of {} must call "
        "it",
        ranks_text(callers), callers.size() == 1 ? "calls" : "call", call,
        first.at.text(), ranks_text(absent), absent.size() == 1 ? "has" : "have",
        team.name);
    diagnosis.parties = {
        party(callers, call, first.at),
        party(absent, absent.size() == 1 ? "has ended" : "have ended", SourceLine())};
    throw FaultError(std::move(diagnosis));
}

class RunChecker final : public Checker {
  public:
    explicit RunChecker(Engine& engine) : engine_(engine) {}

    void expected(const Team& team, int member, const Expectation& same,
                  Picoseconds now) override {
        Rollcall::Claim claim;
        claim.member = member;
        claim.shape = same.shape;
        claim.dtype = same.dtype;
        claim.name = same.name;
        claim.at = same.at;
        claim.call = same.reads ? "declare_same" : "expect_replicated";
        claim.reads = same.reads;
        claim.made_at = same.made_at;
        claim.time = now;
        const std::uint64_t number = expected_.next_number(team, member);
        if (!same.values) return expected_.note(team, number, std::move(claim));
        const HostTensor& values = *same.values;
        claim.hash = hash_of_bits(values.data(), values.bytes());
        expected_.note(team, number, std::move(claim), [&] { return values; });
    }
    std::optional<Diagnosis> explain_open_works(const Team& team, int member) override {
        return sim::explain_open_works(engine_, team, member);
    }

    void quiet() override { expected_.compare(); }
    void require_same_groups(const Team& team, const Meeting& meeting) override {
        sim::require_same_groups(engine_, team, meeting);
    }
    Diagnosis explain_difference(const Posted& posted) override {
        Diagnosis diagnosis = sim::explain_difference(engine_, posted);
        diagnosis.waits = waits_of(engine_);
        return diagnosis;
    }
    std::optional<Diagnosis> explain_stop() override {
        std::optional<Diagnosis> diagnosis = sim::explain_stop(engine_);
        if (!diagnosis) diagnosis = explain_unwaited(engine_);
        if (diagnosis) diagnosis->waits = waits_of(engine_);
        return diagnosis;
    }
    void run_ended() override {
        if (std::optional<Diagnosis> kept = explain_kept(engine_))
            throw FaultError(std::move(*kept));
        require_all_expected(expected_);
    }
    void complete(Diagnosis& diagnosis) override { sim::complete(engine_, diagnosis); }

  private:
    Engine& engine_;
    /// Claims that must agree within a team.
    Rollcall expected_{explain_copies, [](Diagnosis diagnosis) {
                           throw FaultError(std::move(diagnosis));
                       }};
};

void add_watchers(Engine& engine, Watchers& watchers) {
    const bool several = engine.options().ranks > 1;
    const bool numbers = engine.options().numbers;
    auto layouts = std::make_unique<Layouts>(engine);
    auto terms = std::make_unique<TermsTracker>(engine.ranks().size());
    watchers.add(watch_buffers(engine));
    watchers.add(watch_launch_order(engine));
    watchers.add(watch_versions(engine, *layouts));
    watchers.add(watch_row_weights(engine));
    watchers.add(watch_gradient_use(engine));
    if (several) {
        NormWatcher norms = watch_gradient_norms(engine, *layouts);
        watchers.add(std::move(norms.watcher));
        if (numbers) {
            watchers.add(watch_alike(engine));
            watchers.add(watch_replicas(engine, *layouts, *terms, *norms.clips));
            watchers.add(watch_own_gradients(engine, *layouts, *terms));
        }
        watchers.add(watch_shard_steps(engine, *layouts));
        watchers.add(watch_random_streams(engine, *layouts));
    }
    watchers.add(std::move(layouts));
    if (several && numbers) watchers.add(std::move(terms));
    watchers.add(watch_shards(engine));
    if (numbers && engine.options().reference) watchers.add(watch_reference(engine));
}

}  // namespace

std::unique_ptr<Checker> make_checker(Engine& engine, Watchers& watchers) {
    if (engine.options().check == CheckLevel::full) add_watchers(engine, watchers);
    return std::make_unique<RunChecker>(engine);
}

}  // namespace lockstep::sim
