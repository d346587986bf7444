#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/pipeline/holdings.hpp"
#include "src/pipeline/timer.hpp"

namespace lockstep {

/// Says how a stage's copies of the middle differ.
class PeriodShift {
  public:
    /// The schedule has a period, whose positions are in range.
    PeriodShift(const Schedule& schedule, int stage);

    /// Returns the instruction as it stands so many copies later.
    Instruction of(Instruction work, int copies) const;

  private:
    int micro_batches_;
    std::vector<int> versions_;  ///< updates of each chunk in a copy
};

/// The schedule with that many copies of its repeated middle; micro-batches and versions
/// behind it are as much further on. Throws UsageError if it has no middle that repeats,
/// for less than one copy, or for sizes that are too large.
Schedule repeated(const Schedule& schedule, int times);

/// Returns the texts of a stage's instructions as they stand in a file, with the middle
/// that repeats, if there is one, written once: "[", …, "]x3".
std::vector<std::string> texts_of(const Schedule& schedule, int stage);

/// What happens again and again in a pipeline that does not stop, once all stages keep
/// the same pace.
struct PeriodTiming {
    Schedule schedule;  ///< with as many copies of the middle as it took to find out
    int first = 0;      ///< the first copy of the period, counted from 0
    int copies = 1;     ///< after so many, all happens again, `length` later
    int micro_batches = 0;
    Picoseconds length = 0;
    std::vector<Picoseconds> busy;  ///< of each stage, in one period
    Schedule sent;    ///< the schedule with its messages, if it is given any
    Timing timing;    ///< of that one
    TimeSpan window;  ///< one period, in which all stages keep the pace

    /// What the busiest stage computes, and what it does not.
    Picoseconds ideal() const;
    Picoseconds bubble() const { return length - ideal(); }
    double bubble_over_total() const;
    /// Returns the positions of the period's copies in a stage's list.
    Positions positions(int stage) const;
};

/// Times the schedule's middle as if it repeated for ever: exact, by following as many
/// copies as it takes until what happens in one happens again later, for as long as any
/// micro-batch is under way. Throws UsageError as repeated() and time_schedule() do, and
/// if all goes on without such a rhythm, as where a stage is faster than those that it
/// does not wait for.
///
/// `add_messages`, if given, adds messages to the schedule with its copies.
using AddMessages = std::function<Schedule(const Schedule&)>;
PeriodTiming time_period(const Schedule& schedule, const ScheduleTimes& times,
                         const AddMessages& add_messages = {});

/// Returns what each stage holds at most in the period.
std::vector<Holdings> peak_holdings(const PeriodTiming& period,
                                    const ScheduleMemory& memory = {});

/// The steps between weights that gradients are of and those that they change, by stage
/// and chunk, at most, in the period (WeightUse::staleness()); -1 where nothing updates.
std::vector<std::vector<int>> staleness(const PeriodTiming& period);

}  // namespace lockstep
