#include "lessons/assignments/pipeline_1f1b/grading/causes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "src/pipeline/holdings.hpp"
#include "src/pipeline/timer.hpp"
#include "src/pipeline/validate.hpp"

namespace lockstep::lessons {

using enum InstructionKind;

namespace {

/// A whole backward, or the half that the stage before waits for.
bool leads_back(const Instruction& work) {
    return work.kind == backward || work.kind == backward_input;
}

/// Returns how many forwards stand in front of a stage's first backward.
int warm_up(const Schedule& schedule, int stage) {
    const std::vector<Instruction>& list = schedule.of(stage);
    return static_cast<int>(std::ranges::find_if(list, leads_back) - list.begin());
}

bool all_warm_up_by(const Schedule& schedule, int forwards) {
    int stage = 0;
    while (stage < schedule.stages && warm_up(schedule, stage) == forwards)
        ++stage;
    return stage == schedule.stages;
}

int held_by(const HeldByStage& stage) {
    return static_cast<int>(std::lround(stage.now().memory));
}

/// Does every stage make so many forwards, then as many backwards, and so on?
bool is_gpipe_by(const Schedule& schedule, int group) {
    for (const std::vector<Instruction>& list : schedule.work)
        for (int i = 0; i < 2 * schedule.micro_batches; ++i) {
            const int first = i / (2 * group) * group;
            const int count = std::min(group, schedule.micro_batches - first);
            const int place = i - 2 * first;
            const bool back = place >= count;
            const Instruction expected{back ? backward : forward,
                                       first + (back ? place - count : place)};
            if (list[static_cast<std::size_t>(i)] != expected) return false;
        }
    return true;
}

/// Does each W follow its own I at once?
bool halves_are_together(const Schedule& schedule) {
    int halves = 0;
    for (const std::vector<Instruction>& list : schedule.work)
        for (std::size_t i = 0; i < list.size(); ++i) {
            if (list[i].kind != backward_input) continue;
            ++halves;
            if (i + 1 == list.size() || list[i + 1].kind != backward_weight ||
                list[i + 1].micro_batch != list[i].micro_batch)
                return false;
        }
    return halves > 0;
}

/// Stage `waiting.stage` does nothing from `begin` on until `end`, when it begins what
/// stands at `waiting`; what stands at `ready`, further behind, could have run.
struct Chance {
    Place waiting, ready;
    TimeSpan idle;
};

/// Looks for what a stage could have done while it waited.
class Chances {
  public:
    Chances(const Schedule& schedule, const Durations& each, const MostHeld& most)
        : schedule_(schedule), timing_(time_schedule(schedule, {each})), most_(most) {
        for (int stage = 0; stage < schedule.stages; ++stage)
            for (const Place& place : schedule.places(stage)) {
                const Instruction& work = schedule.at(place);
                if (!is_computation(work.kind)) continue;
                auto& of_kind = done_[static_cast<std::size_t>(work.kind)];
                of_kind.resize(static_cast<std::size_t>(schedule.stages));
                auto& of_stage = of_kind[static_cast<std::size_t>(stage)];
                of_stage.resize(static_cast<std::size_t>(schedule.micro_batches));
                of_stage[static_cast<std::size_t>(work.micro_batch)] =
                    timing_.span(place).end;
            }
    }

    /// Returns the first that any stage missed.
    std::optional<Chance> first() const {
        std::optional<Chance> first;
        for (int stage = 0; stage < schedule_.stages; ++stage) {
            const std::optional<Chance> missed = first_of(stage);
            if (missed && (!first || missed->idle.start < first->idle.start))
                first = missed;
        }
        return first;
    }

  private:
    std::optional<Chance> first_of(int stage) const {
        HeldByStage held(schedule_, stage, kMemory);
        Picoseconds free = 0;  // from then on the stage does nothing
        for (const Place& place : schedule_.places(stage)) {
            const TimeSpan& span = timing_.span(place);
            if (span.start > free)
                if (const auto missed = missed_at(place, free, held_by(held)))
                    return missed;
            held.run({place.position, place.position + 1});
            free = span.end;
        }
        return std::nullopt;
    }

    /// `held` are held while the stage waits for what stands at `waiting`.
    std::optional<Chance> missed_at(Place waiting, Picoseconds free, int held) const {
        const Picoseconds start = timing_.span(waiting).start;
        const int count = static_cast<int>(schedule_.of(waiting.stage).size());
        for (int position = waiting.position + 1; position < count; ++position) {
            const Place place{waiting.stage, position};
            const Instruction& work = schedule_.at(place);
            if (!is_computation(work.kind)) continue;
            if (work.kind == forward && held >= most_(place.stage)) continue;
            const Picoseconds from = std::max(free, ready(place));
            if (from < start) return Chance{waiting, place, {from, start}};
        }
        return std::nullopt;
    }

    /// Returns when all that an instruction needs is there.
    Picoseconds ready(Place place) const {
        const Instruction& work = schedule_.at(place);
        const int i = work.micro_batch;
        if (work.kind == forward)
            return place.stage == 0 ? 0 : done(forward, place.stage - 1, i);
        if (work.kind == backward_weight) return done(backward_input, place.stage, i);
        const Picoseconds own = done(forward, place.stage, i);
        if (place.stage + 1 == schedule_.stages) return own;
        return std::max(own, done(work.kind, place.stage + 1, i));
    }
    Picoseconds done(InstructionKind kind, int stage, int i) const {
        return done_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(stage)]
                    [static_cast<std::size_t>(i)];
    }

    inline static const ScheduleMemory kMemory;

    const Schedule& schedule_;
    Timing timing_;
    const MostHeld& most_;
    /// When each computation ends: by kind, stage and micro-batch.
    std::array<std::vector<std::vector<Picoseconds>>, kInstructionKinds> done_;
};

}  // namespace

std::string cause_of_standstill(const Schedule& schedule) {
    Schedule other = schedule;
    std::ranges::reverse(other.work);
    if (find_problem(other)) return "";
    return "It could run if stages had their lists the other way round: the first stage "
           "needs the most forwards before its first backward, the last one the fewest.";
}

std::string cause_of_holding(const Schedule& schedule, int stage, const MostHeld& most) {
    const int first = warm_up(schedule, 0);
    if (all_warm_up_by(schedule, schedule.micro_batches))
        return "every stage makes all forwards before its first backward: that is GPipe";
    if (most(0) > most(schedule.stages - 1) && all_warm_up_by(schedule, first))
        return fmt::format(
            "every stage makes {} forwards before its first backward: the later a stage "
            "is, the sooner its first backward can run, and the fewer forwards it needs",
            first);
    const ScheduleMemory memory;
    HeldByStage held(schedule, stage, memory);
    for (const Place& place : schedule.places(stage)) {
        const Holdings meanwhile = held.run({place.position, place.position + 1});
        if (std::lround(meanwhile.memory) <= most(stage)) continue;
        return fmt::format(
            "stage {} begins {}, its instruction {}, while it holds {}: the backward of "
            "one of them has to come first",
            stage, text_of(schedule.at(place)), place.position + 1, most(stage));
    }
    return "";
}

std::string cause_of_waiting(const Schedule& schedule, const Durations& each,
                             const MostHeld& most) {
    if (peak_holdings(schedule).front().in_flight == 1)
        return "each micro-batch goes all the way forth and back before the next one "
               "begins";
    if (halves_are_together(schedule))
        return "each W stands right behind its I, as if backward were whole: a W can "
               "wait, and the stage before waits for the next I";
    const int group = warm_up(schedule, 0);
    if (is_gpipe_by(schedule, group))
        return fmt::format(
            "every stage makes {} forwards, then their backwards, and so "
            "on: that is GPipe, group by group",
            group);
    const std::optional<Chance> missed = Chances(schedule, each, most).first();
    if (!missed) return "";
    const std::string waits = text_of(schedule.at(missed->waiting));
    return fmt::format(
        "stage {} does nothing from {} to {}, since {} is next in its list; {}, which "
        "stands behind it, could run then",
        missed->waiting.stage, missed->idle.start, missed->idle.end, waits,
        text_of(schedule.at(missed->ready)));
}

}  // namespace lockstep::lessons
