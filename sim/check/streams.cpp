#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "sim/check/check.hpp"
#include "sim/check/layouts.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/rollcall.hpp"
#include "sim/check/shadow.hpp"
#include "sim/engine.hpp"
#include "sim/watcher.hpp"

namespace lockstep::sim {

namespace {

/// Random numbers that a rank drew in forward.
struct Draw {
    const char* name = "";
    RandomStream stream;
    std::int64_t offset = 0;
    std::int64_t count = 0;
    std::int64_t pitch = 0;    ///< from row to row, if rows have gaps; else 0
    std::int64_t columns = 0;  ///< of such rows
    SourceLine at;

    /// Returns whether both draws begin with the same numbers; one may have more rows.
    bool begins_as(const Draw& other) const;
    std::uint64_t hash() const;
    std::string text() const;
};

/// F29: ranks share random numbers but should not, or do not share them but should.
///
/// Looks at masks: numbers that are drawn in a forward phase and multiply a tensor there.
/// If activations are replicas, because all ranks have them from one all-reduce or
/// all-gather, they need the same mask on all of these ranks. Replicas of a model (their
/// gradients are summed) need different masks. Ranks have replicas, and not parts of one
/// model, if they exchange only parameters in forward. If a team has declared replicas of
/// single parameters, only its sums in the category `gradients` count, because its ranks
/// may have parts of one model. A mask is identified by its stream and offset; a mask
/// that the program uploads is unknown.
class StreamWatcher final : public Tracker<Draw> {
  public:
    StreamWatcher(const Engine& engine, const Layouts& layouts);

    void declared(const Team& team, int member, const Tensor& tensor,
                  const std::string& name, SourceLine at) override;
    void executing(int rank, const DeviceOperation& operation) override;
    void launched(Launch& launch) override;
    void quiet() override { rollcall_.compare_new(); }
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void run_ended() override { quiet(); }

  private:
    struct Use {
        Draw draw;
        SourceLine at;
    };
    struct RankDraws {
        std::vector<Use> uses;               ///< since the last update
        std::vector<const Team*> exchanged;  ///< teams used in forward since that update
    };

    RankDraws& draws_of(int rank) { return ranks_[rank]; }
    bool is_in_forward(int rank) const;
    void multiplied(int rank, const DeviceOperation& operation);
    /// Notes that the rank's activation is masked by the drawn numbers.
    void masked(int rank, const Tensor& activation, const Draw& draw, SourceLine at);
    bool are_replicas(const Team& team) const;
    bool sums_gradients(const Team& team, const Meeting& meeting) const;
    Diagnosis explain_shared(const Team& team, const Meeting& meeting) const;

    const Engine& engine_;
    const Layouts& layouts_;
    std::vector<RankDraws> ranks_;
    std::set<const Team*> declared_;  ///< teams with declared replicas
    Rollcall rollcall_;
};

bool Draw::begins_as(const Draw& other) const {
    return stream.seed == other.stream.seed && stream.purpose == other.stream.purpose &&
           offset == other.offset && pitch == other.pitch && columns == other.columns;
}

std::uint64_t Draw::hash() const {
    std::uint64_t hash = mixed(stream.seed, stream.purpose);
    for (const std::int64_t number : {offset, count, pitch, columns})
        hash = mixed(hash, static_cast<std::uint64_t>(number));
    return hash;
}

std::string Draw::text() const {
    std::string text = fmt::format("{} of seed {}, numbers {} to {}", name, stream.seed,
                                   offset, offset + (pitch > 0 ? columns : count) - 1);
    if (pitch > 0) text += fmt::format(" and so on, rows {} apart", pitch);
    return text;
}

using Claim = Rollcall::Claim;

Diagnosis explain_different(const Rollcall::Roll& roll,
                            const std::vector<Rollcall::Side>& sides) {
    const Team& team = *roll.team;
    const auto multiply = [&](const Rollcall::Side& side) {
        const std::vector<int> ranks = side.ranks(team);
        const Claim::Maker& drawn = side.first().makers.front();
        return fmt::format("{} {} it at {} by {}, drawn at {}", ranks_text(ranks),
                           ranks.size() == 1 ? "multiplies" : "multiply",
                           side.first().at.text(), side.first().name, drawn.at.text());
    };
    Diagnosis diagnosis = diagnosis_on(team, "F29");
    diagnosis.sentence = fmt::format(
        "an activation that is the same on all ranks of {} is masked differently: {}, "
        "but {}; from here on the ranks' activations are no longer replicas",
        team.name, multiply(sides[1]), multiply(sides[0]));
    for (const Rollcall::Side& side : sides)
        diagnosis.parties.push_back(party(side.ranks(team), "draws what it multiplies by",
                                          side.first().makers.front().at,
                                          side.first().name));
    return diagnosis;
}

/// Returns whether the operation may turn drawn numbers into a mask: it shifts, scales or
/// cuts off numbers, in place.
bool shapes_a_mask(const DeviceOperation& operation) {
    return operation.is<ops::Scale>() || operation.is<ops::ScaleByTensor>() ||
           operation.is<ops::Add>() || operation.is<ops::Combine>();
}

/// Returns the numbers that the operation draws, one for each element of its result.
Draw draw_of(const DeviceOperation& operation) {
    const Derivation& derivation = operation.derivation;
    const Tensor& result = *operation.writes[0];
    const std::int64_t pitch = derivation.pitch;
    return {operation.name,
            derivation.stream,
            derivation.offset,
            result.elements(),
            pitch,
            pitch > 0 ? result.shape().columns() : 0,
            operation.at};
}

StreamWatcher::StreamWatcher(const Engine& engine, const Layouts& layouts)
    : Tracker(engine.ranks().size()),
      engine_(engine),
      layouts_(layouts),
      ranks_(engine.ranks().size()),
      rollcall_(explain_different,
                [this](Diagnosis diagnosis) { report(std::move(diagnosis)); }) {}

bool StreamWatcher::is_in_forward(int rank) const {
    return engine_.ranks()[rank]->virtual_device.phase() == Phase::forward;
}

void StreamWatcher::declared(const Team& team, int /*member*/, const Tensor& /*tensor*/,
                             const std::string& /*name*/, SourceLine /*at*/) {
    declared_.insert(&team);
}

void StreamWatcher::executing(int rank, const DeviceOperation& operation) {
    RankDraws& mine = draws_of(rank);
    Known& drawn = known(rank);
    switch (operation.derivation.kind) {
        case Derivation::Kind::random:
            // Numbers drawn outside of forward are a parameter's first values, or data.
            if (is_in_forward(rank)) {
                drawn.set(*operation.writes[0], draw_of(operation));
                return;
            }
            break;
        case Derivation::Kind::update:
            mine.uses.clear();
            mine.exchanged.clear();
            break;
        case Derivation::Kind::copy:
            return copy_facts(rank, operation);
        default:
            break;
    }
    // Dropout draws its mask itself.
    if (operation.is<ops::Dropout>() && is_in_forward(rank))
        masked(rank, *operation.reads[0], draw_of(operation), operation.at);
    if (drawn.empty()) return;
    if (operation.is<ops::Multiply>() || operation.is<ops::ScaleRows>())
        multiplied(rank, operation);
    if (!shapes_a_mask(operation)) forget_results(rank, operation);
}

void StreamWatcher::multiplied(int rank, const DeviceOperation& operation) {
    if (!is_in_forward(rank)) return;
    const auto* const first = known(rank).whole(*operation.reads[0]);
    const auto* const second = known(rank).whole(*operation.reads[1]);
    if ((first == nullptr) == (second == nullptr)) return;
    masked(rank, *operation.reads[first != nullptr ? 1 : 0],
           (first != nullptr ? first : second)->fact, operation.at);
}

void StreamWatcher::masked(int rank, const Tensor& activation, const Draw& draw,
                           SourceLine at) {
    if (draw.count == 0) return;  // a rank without rows shares no numbers
    RankDraws& mine = draws_of(rank);
    // Along other axes than the one along which the activation is alike, ranks may be
    // replicas, which need other masks.
    constexpr std::size_t kKept = 4096;  // for runs that never update
    if (mine.uses.size() < kKept) mine.uses.push_back({draw, at});
    const Layout layout = layouts_.layout_of(rank, activation);
    const Team* const team = layout.team();
    if (layout.kind != Layout::Kind::replicated || team == nullptr ||
        !facts_of(layout.origin->verb).is_alike() ||
        facts_of(layout.origin->verb).has_root() || team->size() < 2 || !team->has(rank))
        return;
    Claim claim;
    claim.member = team->member_of(rank);
    claim.hash = draw.hash();
    claim.shape = activation.shape();
    claim.dtype = activation.dtype();
    claim.name = draw.text();
    claim.at = at;
    claim.time = engine_.ranks()[rank]->virtual_device.now();
    claim.makers.push_back({0, activation.bytes(), draw.name, draw.at});
    rollcall_.note(*team, layout.identity, std::move(claim));
}

void StreamWatcher::launched(Launch& launch) {
    RankDraws& mine = draws_of(launch.rank);
    for (const Posted& posted : launch.posted) {
        const CommOperation& operation = posted.operation;
        if (operation.output) known(launch.rank).forget(operation.output);
        const bool parameters =
            facts_of(operation.verb).gathers() && !facts_of(operation.verb).has_root() &&
            operation.input &&
            operation.input.storage()->category == MemoryCategory::parameters;
        if (!is_in_forward(launch.rank) || operation.count <= 1 || parameters) continue;
        std::vector<const Team*>& teams = mine.exchanged;
        if (std::find(teams.begin(), teams.end(), launch.team) == teams.end())
            teams.push_back(launch.team);
    }
}

/// Returns whether the members have exchanged only parameters in forward. If they
/// exchange more, they may be parts of one model, which may share masks.
bool StreamWatcher::are_replicas(const Team& team) const {
    for (const int rank : team.ranks)
        for (const Team* other_team : ranks_[rank].exchanged)
            for (const int other : team.ranks)
                if (other != rank && other_team->has(other)) return false;
    return true;
}

bool StreamWatcher::sums_gradients(const Team& team, const Meeting& meeting) const {
    return declared_.count(&team) == 0 ||
           meeting.arrived.front()->operation.input.storage()->category ==
               MemoryCategory::gradients;
}

void StreamWatcher::collective_begins(const Team& team, const Meeting& meeting) {
    const CommOperation& operation = meeting.first->operation;
    if (!operation.is_sum() || operation.count <= 1 || team.size() < 2 ||
        !is_floating(operation.dtype))
        return;
    const std::vector<Use>& first = draws_of(team.ranks.front()).uses;
    if (first.empty()) return;
    for (const Posted* posted : meeting.arrived) {
        const int rank = posted->launch->rank;
        const std::vector<Use>& uses = draws_of(rank).uses;
        const bool same = std::equal(
            uses.begin(), uses.end(), first.begin(), first.end(),
            [](const Use& a, const Use& b) { return a.draw.begins_as(b.draw); });
        if (!same || is_in_forward(rank)) return;
    }
    if (are_replicas(team) && sums_gradients(team, meeting))
        report(explain_shared(team, meeting));
}

Diagnosis StreamWatcher::explain_shared(const Team& team, const Meeting& meeting) const {
    const CommOperation& operation = meeting.arrived.front()->operation;
    const std::vector<int> ranks = sorted_ranks(team);
    // All ranks have drawn at least what the rank with the fewest rows drew.
    const int fewest = *std::min_element(ranks.begin(), ranks.end(), [&](int a, int b) {
        return ranks_[a].uses.front().draw.count < ranks_[b].uses.front().draw.count;
    });
    const Use& use = ranks_[fewest].uses.front();
    Diagnosis diagnosis = diagnosis_on(team, meeting.first->sequence, "F29");
    diagnosis.sentence = fmt::format(
        "all replicas of {} use the same random mask: {} draw {} at {}, multiply their "
        "activations by it at {}, and sum their gradients in {} at {}, so that all of "
        "them drop or change the same units",
        team.name, ranks_text(ranks), use.draw.text(), use.draw.at.text(), use.at.text(),
        text_of(operation), operation.at.text());
    diagnosis.parties = {
        party(ranks, use.draw.text(), use.draw.at, "the same on all ranks"),
        party(ranks, text_of(operation), operation.at)};
    return diagnosis;
}

}  // namespace

std::unique_ptr<Watcher> watch_random_streams(Engine& engine, const Layouts& layouts) {
    return std::make_unique<StreamWatcher>(engine, layouts);
}

}  // namespace lockstep::sim
