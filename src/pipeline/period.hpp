#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/pipeline/holdings.hpp"
#include "src/pipeline/timer.hpp"

namespace lockstep {

/// How a stage's copies of the middle differ.
class PeriodShift {
  public:
    /// The schedule must have a period whose positions are in range.
    PeriodShift(const Schedule& schedule, int stage);

    /// Returns the instruction as it is `copies` copies later.
    Instruction shifted(Instruction work, int copies) const;

  private:
    int micro_batches_;
    std::vector<int> versions_;  ///< updates of each chunk in a copy
};

/// Returns the schedule with `times` copies of its repeated middle. Micro-batches and
/// versions after the middle are shifted to match. Throws UsageError if the schedule has
/// no middle that repeats, for less than one copy, and for sizes that are too large.
Schedule repeated(const Schedule& schedule, int times);

/// Returns the texts of a stage's instructions as a file has them. A middle that repeats
/// is written once: "[", …, "]x3".
std::vector<std::string> texts_of(const Schedule& schedule, int stage);

/// The steady state of a pipeline without a flush: what repeats once all stages keep the
/// same pace.
struct PeriodTiming {
    Schedule schedule;  ///< with the copies that were needed to find the period
    int first = 0;      ///< the first copy of the period, counted from 0
    int copies = 1;     ///< the period's length in copies
    int micro_batches = 0;
    Picoseconds length = 0;
    std::vector<Picoseconds> busy;  ///< busy time of each stage in one period
    Schedule sent;                  ///< the schedule, with messages if they were added
    Timing timing;                  ///< of `sent`
    TimeSpan window;                ///< one period, in which all stages keep the pace

    /// How long the busiest stage computes and updates in a period; the rest is bubble().
    Picoseconds ideal() const;
    Picoseconds bubble() const { return length - ideal(); }
    double bubble_over_total() const;
    /// Returns the positions of the period's copies in a stage's list.
    Positions positions(int stage) const;
};

/// Times the schedule's middle as if it repeated for ever. The result is exact: copies
/// are followed until their times repeat for longer than any micro-batch is under way.
/// Throws UsageError as repeated() and time_schedule() do, and if the times never repeat,
/// for example because a stage is faster than the others and waits for none of them.
///
/// `add_messages`, if given, adds messages to the schedule with its copies.
using AddMessages = std::function<Schedule(const Schedule&)>;
PeriodTiming time_period(const Schedule& schedule, const ScheduleTimes& times,
                         const AddMessages& add_messages = {});

/// Returns each stage's peaks within the period.
std::vector<Holdings> peak_holdings(const PeriodTiming& period,
                                    const ScheduleMemory& memory = {});

/// Returns the largest WeightUse::staleness() in the period, by stage and chunk; -1 if
/// the chunk is never updated.
std::vector<std::vector<int>> staleness(const PeriodTiming& period);

}  // namespace lockstep
