#include <algorithm>

#include <fmt/format.h>

#include "sim/check/check.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/shadow.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

/// Parts of a whole that were gathered in another order than they were scattered in.
struct Misplaced {
    Origin gathering;
    std::vector<std::int64_t> parts;  ///< by member: the part that it passed
    Origin dealing;                   ///< null if random numbers were drawn
    const char* drawn_by = "";
    SourceLine dealt_at;
};

/// A whole whose parts are followed: what a reduce_scatter or scatter has scattered, or a
/// stream of random numbers.
struct ShardedWhole {
    std::uint64_t identity;
    Origin dealing;
    const char* drawn_by;
    SourceLine at;
    std::shared_ptr<const Misplaced> misplaced;

    bool operator==(const ShardedWhole&) const = default;
};

/// Follows shards (which part, and of which whole) through copies and updates in place.
/// It finds parts that are gathered in another order than they were scattered in (F26),
/// as soon as an operation other than a copy reads across two of these parts. A program
/// that gathers in another order and sorts the blocks afterwards makes no mistake.
class ShardWatcher final : public Tracker<ShardedWhole> {
  public:
    using Tracker::Tracker;

    void executing(int rank, const DeviceOperation& operation) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void message_begins(Posted& send, Posted& recv) override { copy_facts(send, recv); }

  private:
    void check_use(int rank, const DeviceOperation& operation) const;
    std::shared_ptr<const Misplaced> misplaced_in(const Meeting& meeting) const;
};

using Range = Shadow<ShardedWhole>::Range;

/// Returns the range of a part that begins `offset` bytes after its whole begins.
Range part_at(std::int64_t offset, const Tensor& part, ShardedWhole whole) {
    return {0, part.bytes(), -offset, std::move(whole)};
}

std::string held_text(const Misplaced& misplaced) {
    constexpr std::size_t kTold = 4;
    std::string text;
    const auto& ranks = misplaced.gathering->team->ranks;
    for (std::size_t member = 0; member < ranks.size() && member < kTold; ++member)
        text += fmt::format("{}part {} (rank {})", member == 0 ? "" : ", ",
                            misplaced.parts[member], ranks[member]);
    return text + (ranks.size() > kTold ? ", …" : "");
}

/// Returns ", a communicator made at mesh.cpp:12,"; empty for world.
std::string made_text(const Team& team) {
    const SourceLine at =
        team.lifetimes.empty() ? SourceLine() : team.lifetimes[0].made_at;
    return at.line > 0 ? fmt::format(", a communicator made at {},", at.text()) : "";
}

Diagnosis explain(const Misplaced& misplaced, const DeviceOperation& reader) {
    const CollectiveOrigin& gathering = *misplaced.gathering;
    Diagnosis diagnosis = diagnosis_on(*gathering.team, gathering.sequence, "F26");
    const std::string dealt =
        misplaced.dealing
            ? fmt::format("{} scattered", misplaced.dealing->text_with_line())
            : fmt::format("{} at {} drew (each rank its part, by offset)",
                          misplaced.drawn_by, misplaced.dealt_at.text());
    diagnosis.sentence = fmt::format(
        "{} changes the order of the parts that {}: the ranks of {}{} bring {}, and {} "
        "at {} uses the result as the whole",
        gathering.text_with_line(), dealt, gathering.team->name,
        made_text(*gathering.team), held_text(misplaced), reader.name, reader.at.text());
    diagnosis.parties = {misplaced.dealing
                             ? misplaced.dealing->party()
                             : party(sorted_ranks(*gathering.team), misplaced.drawn_by,
                                     misplaced.dealt_at),
                         gathering.party()};
    return diagnosis;
}

/// Returns whether the operation changes its first operand element by element.
bool keeps_places(const DeviceOperation& operation) {
    const Derivation& derivation = operation.derivation;
    return derivation.kind == Derivation::Kind::scale ||
           derivation.kind == Derivation::Kind::update ||
           (derivation.adds && operation.reads.size() == 2 &&
            operation.reads[0] == operation.writes[0] &&
            operation.reads[1]->elements() == operation.writes[0]->elements());
}

void ShardWatcher::executing(int rank, const DeviceOperation& operation) {
    check_use(rank, operation);
    const Derivation& derivation = operation.derivation;
    if (derivation.kind == Derivation::Kind::copy) return copy_facts(rank, operation);
    for (const Tensor* written : operation.writes)
        if (!keeps_places(operation) || written != operation.writes[0])
            known(rank).forget(*written);
    if (derivation.kind != Derivation::Kind::random || derivation.pitch != 0) return;
    const RandomStream& stream = derivation.stream;
    const Tensor& drawn = *operation.writes[0];
    known(rank).put(
        drawn,
        {part_at(derivation.offset * bytes_of(operation.dtype), drawn,
                 {mixed(mixed(operation.is<ops::RandomUniform>() ? 1 : 2, stream.seed),
                        stream.purpose),
                  nullptr, operation.name, operation.at, nullptr})});
}

void ShardWatcher::check_use(int rank, const DeviceOperation& operation) const {
    const Derivation::Kind kind = operation.derivation.kind;
    if (kind == Derivation::Kind::copy || kind == Derivation::Kind::part ||
        kind == Derivation::Kind::scale)
        return;
    for (const Tensor* read : operation.reads) {
        const auto ranges = known(rank).read(*read);
        for (std::size_t i = 1; i < ranges.size(); ++i) {
            const Range& before = ranges[i - 1];
            const Range& here = ranges[i];
            if (here.fact.misplaced && here.fact.misplaced == before.fact.misplaced &&
                here.begin == before.end && here.start != before.start)
                report(explain(*here.fact.misplaced, operation));
        }
    }
}

void ShardWatcher::collective_begins(const Team& /*team*/, const Meeting& meeting) {
    const VerbFacts verb = facts_of(meeting.first->operation.verb);
    if (!verb.moves()) return;
    const bool deals = verb.scatters();
    const Origin origin = deals ? origin_of(meeting) : nullptr;
    Ranges whole;  // of the values that all members have afterwards
    if (verb.gathers() || (verb.is_alike() && !verb.reduces)) whole = moved(meeting);
    if (verb.gathers()) {
        const auto misplaced = misplaced_in(meeting);
        for (Range& range : whole)
            range.fact.misplaced = misplaced;
    }
    for (const Posted* side : holders_of(meeting)) {
        const Tensor& output = side->operation.output;
        if (deals)
            known(side->launch->rank)
                .put(output,
                     {part_at(side->launch->member * output.bytes(), output,
                              {identity_of(*origin), origin, "", origin->at, nullptr})});
        else
            known(side->launch->rank).put(output, whole);
    }
}

/// If the parts make up a piece of one whole, each once, but not in the order of the
/// members, returns the parts; else null.
std::shared_ptr<const Misplaced> ShardWatcher::misplaced_in(
    const Meeting& meeting) const {
    const std::int64_t bytes = meeting.first->operation.input.bytes();
    const Range* first = nullptr;
    std::vector<std::int64_t> offsets;
    for (const Posted* side : meeting.arrived) {
        const Tensor& input = side->operation.input;
        const Range* const range = known(side->launch->rank).whole(input);
        if (range == nullptr ||
            (first != nullptr && range->fact.identity != first->fact.identity))
            return nullptr;
        if (first == nullptr) first = range;
        offsets.push_back(input.offset_bytes() - range->start);
    }
    if (bytes == 0 || std::is_sorted(offsets.begin(), offsets.end())) return nullptr;
    std::vector<std::int64_t> sorted = offsets;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 1; i < sorted.size(); ++i)
        if (sorted[i] != sorted[i - 1] + bytes) return nullptr;
    Misplaced misplaced{origin_of(meeting),
                        {},
                        first->fact.dealing,
                        first->fact.drawn_by,
                        first->fact.at};
    for (const std::int64_t offset : offsets)
        misplaced.parts.push_back((offset - sorted.front()) / bytes);
    return std::make_shared<const Misplaced>(std::move(misplaced));
}

}  // namespace

std::unique_ptr<Watcher> watch_shards(Engine& engine) {
    return std::make_unique<ShardWatcher>(engine.ranks().size());
}

}  // namespace lockstep::sim
