#include "src/pipeline/period.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/pipeline/weight_versions.hpp"

namespace lockstep {

using enum InstructionKind;

PeriodShift::PeriodShift(const Schedule& schedule, int stage)
    : micro_batches_(schedule.period->micro_batches),
      versions_(static_cast<std::size_t>(schedule.chunks), 0) {
    const Positions first = schedule.period->first[stage];
    for (int i = first.first; i < first.last; ++i) {
        const Instruction& work = schedule.of_stage(stage)[i];
        if (work.kind == optimizer_step) ++versions_[work.chunk];
    }
}

Instruction PeriodShift::shifted(Instruction work, int copies) const {
    if (has_micro_batch(work.kind)) work.micro_batch += copies * micro_batches_;
    if (work.weight_version >= 0) work.weight_version += copies * versions_[work.chunk];
    return work;
}

namespace {

/// A copy may have much more than forwards, which size_problem() counts.
void require_countable(const Schedule& schedule, int times) {
    constexpr std::int64_t kMost = 4 * kMostForwards;
    std::int64_t instructions = schedule.instructions();
    for (const Positions& first : schedule.period->first)
        instructions += std::int64_t{times - schedule.period->times} * first.count();
    require(instructions <= kMost,
            "{} copies of its middle make a schedule of {} instructions; at most {} are "
            "possible",
            times, instructions, kMost);
}

}  // namespace

Schedule repeated(const Schedule& schedule, int times) {
    require(schedule.period.has_value(), "schedule '{}' has no middle that repeats",
            schedule.name);
    require(times >= 1, "{} copies of a schedule's middle; one at least is expected",
            times);
    const Period& period = *schedule.period;
    const std::int64_t micro_batches =
        schedule.micro_batches +
        std::int64_t{times - period.times} * period.micro_batches;
    const auto problem =
        micro_batches > kMostMicroBatches
            ? fmt::format("{} micro-batches; at most {} are possible", micro_batches,
                          kMostMicroBatches)
            : size_problem(
                  {schedule.stages, static_cast<int>(micro_batches), schedule.chunks});
    require(!problem, [&] { return *problem; });
    require_countable(schedule, times);

    Schedule made = schedule;
    made.micro_batches = static_cast<int>(micro_batches);
    made.period->times = times;
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const PeriodShift shift(schedule, stage);
        const std::vector<Instruction>& list = schedule.of_stage(stage);
        const Positions first = period.first[stage];
        std::vector<Instruction>& work = made.work[stage];
        work.assign(list.begin(), list.begin() + first.first);
        for (int copy = 0; copy < times; ++copy)
            for (int i = first.first; i < first.last; ++i)
                work.push_back(shift.shifted(list[i], copy));
        const int behind = first.first + period.times * first.count();
        for (int i = behind; i < static_cast<int>(list.size()); ++i)
            work.push_back(shift.shifted(list[i], times - period.times));
    }
    return made;
}

std::vector<std::string> texts_of(const Schedule& schedule, int stage) {
    if (!schedule.period) return texts_of(schedule.of_stage(stage));
    const std::vector<Instruction>& list = schedule.of_stage(stage);
    const Positions middle = schedule.period->first[stage];
    const int times = schedule.period->times;
    const PeriodShift shift(schedule, stage);
    std::vector<std::string> texts;
    const auto add = [&](int first, int last, int copies) {
        std::vector<Instruction> work;
        for (int i = first; i < last; ++i)
            work.push_back(shift.shifted(list[i], copies));
        for (std::string& text : texts_of(work))
            texts.push_back(std::move(text));
    };
    add(0, middle.first, 0);
    texts.emplace_back("[");
    add(middle.first, middle.last, 0);
    texts.push_back(fmt::format("]x{}", times));
    // What follows the copies is written as if there were only one copy.
    add(middle.first + times * middle.count(), static_cast<int>(list.size()), 1 - times);
    return texts;
}

namespace {

/// Compares what happens in copies of the middle.
class Rhythm {
  public:
    /// `timed` is the schedule, perhaps with messages added; `timing` is that of `timed`.
    Rhythm(const Schedule& schedule, const Schedule& timed, const Timing& timing)
        : schedule_(schedule) {
        const bool added = timed.has_messages() && !schedule.has_messages();
        for (int stage = 0; stage < schedule.stages; ++stage) {
            std::vector<TimeSpan>& own = spans_.emplace_back();
            for (const Place place : timed.places(stage))
                if (!added || !is_message(timed.at(place).kind))
                    own.push_back(timing.span(place));
        }
    }

    const TimeSpan& span(int stage, int copy, int i) const {
        const Positions first = schedule_.period->first[stage];
        return spans_[stage][first.first + copy * first.count() + i];
    }
    Picoseconds length_of(int copy, int copies) const {
        return span(0, copy + copies, 0).end - span(0, copy, 0).end;
    }

    /// Returns when all stages have begun a copy.
    Picoseconds begin_of(int copy) const {
        Picoseconds begin = 0;
        for (int stage = 0; stage < schedule_.stages; ++stage)
            begin = std::max(begin, span(stage, copy, 0).start);
        return begin;
    }

    /// Returns whether the copies from `first` to `last` repeat: `copies` copies later,
    /// each instruction ends later, and all of them by the same time.
    bool recurs(int first, int last, int copies) const {
        const Picoseconds length = length_of(first, copies);
        for (int stage = 0; stage < schedule_.stages; ++stage)
            for (int copy = first; copy + copies < last; ++copy)
                for (int i = 0; i < schedule_.period->first[stage].count(); ++i)
                    if (span(stage, copy + copies, i).end !=
                        span(stage, copy, i).end + length)
                        return false;
        return true;
    }

    /// Returns how long a stage computes and updates in `copies` copies of the middle.
    Picoseconds busy(int stage, int first, int copies) const {
        Picoseconds sum = 0;
        const Positions one = schedule_.period->first[stage];
        for (int copy = first; copy < first + copies; ++copy)
            for (int i = 0; i < one.count(); ++i) {
                const Instruction& work = schedule_.of_stage(stage)[one.first + i];
                const bool counts = is_computation(work.kind)
                                        ? !work.together
                                        : work.kind == optimizer_step;
                if (counts) sum += span(stage, copy, i).end - span(stage, copy, i).start;
            }
        return sum;
    }

  private:
    const Schedule& schedule_;
    std::vector<std::vector<TimeSpan>> spans_;
};

/// Returns the maximum number of copies during which a micro-batch is under way, from its
/// forward on one stage to its backward on another stage.
int depth_of(const Schedule& schedule) {
    int least = 0;
    int most = 0;
    bool any = false;
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const Positions first = schedule.period->first[stage];
        for (int i = first.first; i < first.last; ++i) {
            const Instruction& work = schedule.of_stage(stage)[i];
            if (!has_micro_batch(work.kind)) continue;
            least = any ? std::min(least, work.micro_batch) : work.micro_batch;
            most = std::max(most, work.micro_batch);
            any = true;
        }
    }
    return 1 + (most - least) / std::max(schedule.period->micro_batches, 1);
}

}  // namespace

PeriodTiming time_period(const Schedule& schedule, const ScheduleTimes& times,
                         const AddMessages& add_messages) {
    const int depth = depth_of(repeated(schedule, 1));
    constexpr int kMostCopies = 16'384;
    const int each = schedule.period->micro_batches;
    for (int looked_at = std::max(16, depth + 4); looked_at <= kMostCopies;
         looked_at *= 2) {
        // `depth` more copies follow the compared copies, so that what comes after the
        // middle does not change the times of the compared copies.
        const int copies = 2 * looked_at + depth;
        if (std::int64_t{copies} * each * schedule.stages * schedule.chunks >
            kMostForwards)
            break;
        PeriodTiming found;
        found.schedule = repeated(schedule, copies);
        found.sent = add_messages ? add_messages(found.schedule) : found.schedule;
        found.timing = time_schedule(found.sent, times);
        const Rhythm rhythm(found.schedule, found.sent, found.timing);
        for (int every = 1; every <= looked_at / 4; ++every) {
            if (!rhythm.recurs(looked_at, 2 * looked_at, every)) continue;
            found.first = looked_at;
            found.copies = every;
            found.micro_batches = every * each;
            found.length = rhythm.length_of(looked_at, every);
            for (int stage = 0; stage < schedule.stages; ++stage)
                found.busy.push_back(rhythm.busy(stage, looked_at, every));
            found.window.start = rhythm.begin_of(looked_at);
            found.window.end = found.window.start + found.length;
            return found;
        }
    }
    throw UsageError(fmt::format(
        "the times of schedule '{}' did not repeat within the copies that could be "
        "followed; rounder times (with a larger common divisor) help",
        schedule.name));
}

Picoseconds PeriodTiming::ideal() const {
    return *std::max_element(busy.begin(), busy.end());
}

double PeriodTiming::bubble_over_total() const {
    return length == 0 ? 0 : static_cast<double>(bubble()) / static_cast<double>(length);
}

Positions PeriodTiming::positions(int stage) const {
    const Positions one = schedule.period->first[stage];
    return {one.first + first * one.count(), one.first + (first + copies) * one.count()};
}

std::vector<Holdings> peak_holdings(const PeriodTiming& period,
                                    const ScheduleMemory& memory) {
    std::vector<Positions> within;
    within.reserve(period.schedule.work.size());
    for (int stage = 0; stage < period.schedule.stages; ++stage)
        within.push_back(period.positions(stage));
    return peak_holdings(period.schedule, memory, within);
}

std::vector<std::vector<int>> staleness(const PeriodTiming& period) {
    const Schedule& schedule = period.schedule;
    const auto uses = weight_uses(schedule);
    std::vector most(static_cast<std::size_t>(schedule.stages),
                     std::vector(static_cast<std::size_t>(schedule.chunks), -1));
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const Positions all = period.positions(stage);
        for (int i = all.first; i < all.last; ++i) {
            const Instruction& work = schedule.of_stage(stage)[i];
            if (work.kind != forward) continue;
            int& chunk = most[stage][work.chunk];
            chunk =
                std::max(chunk, uses[stage][work.chunk][work.micro_batch].staleness());
        }
    }
    return most;
}

}  // namespace lockstep
