#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lessons/page/document.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/period.hpp"
#include "src/pipeline/picture.hpp"
#include "src/pipeline/schedule_json.hpp"
#include "src/pipeline/search.hpp"
#include "src/pipeline/validate.hpp"
#include "src/text/table.hpp"

namespace lockstep::lessons {

// The output of `lockstep schedule` and of the book's page on pipelines. It needs neither
// a terminal nor files, so it also runs in a browser.

/// How a schedule gets its messages.
enum class MessagesAs : std::uint8_t { none, planned, groups, in_place, by_direction };

/// Which schedule to show, and how long its parts take. The defaults come from the
/// schedule's file, or else from Durations and KeptMemory.
struct ScheduleSettings {
    /// In billionths of the user's unit: one time for all stages, or one per stage.
    using Times = WrittenTimes::Amounts;

    std::string name;  ///< the name of a generator, or the path of a file
    std::optional<int> stages;
    std::optional<int> micro_batches;
    std::optional<int> chunks;
    std::optional<int> per_update;  ///< micro-batches
    /// The times, by their names in WrittenTimes. Times of computations, and of overlaps,
    /// are for all chunks of a stage together.
    std::map<std::string, Times> times;
    MessagesAs messages = MessagesAs::none;
    /// For all chunks of a stage together.
    std::optional<double> memory_activation;
    std::optional<double> memory_weight;
    /// If set, searches for the best order of the same work within this memory per stage.
    std::optional<double> limit;

    bool is_file() const;
    PipelineShape shape() const;  ///< if stages and micro-batches are set
};

/// Reads an option's value, "1,2.5,1". Throws UsageError with the option and the value.
ScheduleSettings::Times read_times(const std::string& option, const std::string& value);
/// Reads the time of a whole backward; each half of it takes half of that time.
void read_backward(const std::string& option, const std::string& value,
                   ScheduleSettings& settings);
/// Reads "planned", "groups", "in-place" or "by-direction"; throws UsageError otherwise.
MessagesAs read_messages_as(const std::string& option, const std::string& value);
/// Reads an amount of memory.
double read_memory(const std::string& option, const std::string& value);

/// A generator has a name and needs sizes; a file has its own sizes. Throws UsageError
/// for an unknown name, or if a size is missing.
void require_known(const ScheduleSettings& settings);

/// Returns the generator's schedule. Throws UsageError if the sizes do not allow it.
Schedule generated_schedule(const ScheduleSettings& settings);

/// A schedule with its times, or with its problem.
struct ExaminedSchedule {
    Schedule schedule;
    std::optional<ScheduleProblem> problem;  ///< if there is one, nothing is timed
    Timing timing;
    std::optional<PeriodTiming> period;  ///< if the schedule's middle can repeat for ever
    std::string no_period = {};          ///< why there is no period
    std::optional<double> limit;         ///< of the search for a better order
    std::vector<KnownOrder> known;       ///< other orders of the same work
    TimingJsonOptions shown;
    SchedulePicture picture;

    /// Returns the picture. This object must outlive the picture.
    Chart chart() const { return schedule_chart(schedule, timing, picture); }
    SchedulePicture period_picture = {};
    /// The period must exist. Returns its picture, which this object must outlive.
    Chart chart_of_period() const {
        return schedule_chart(period->sent, period->timing, period_picture);
    }
};

/// Times the schedule as the settings and its file say, and adds messages if the settings
/// ask for them. Throws UsageError if the times in the settings do not fit the stages or
/// the file's times, or if they are too large to count.
ExaminedSchedule examined(const ScheduleSettings& settings, LoadedSchedule loaded);

/// Returns {"name", "problem", "cycle"} as JSON: the output of `--json` for a schedule
/// that cannot run.
std::string problem_json(const Schedule& schedule, const ScheduleProblem& problem);

/// Returns the schedule's times and period as one JSON document; with `spans`, also when
/// each instruction begins and ends.
std::string examined_json(const ExaminedSchedule& examined, bool spans = false);

/// Returns a table of the best order that was found, and of the generators' orders.
Table known_table(const ExaminedSchedule& examined);
/// Returns a table of makespan, bubble and utilisation, in the unit that is shown.
Table bubble_table(const ExaminedSchedule& examined);
/// Returns a table of what each stage does and holds.
Table stage_table(const ExaminedSchedule& examined);
/// Return two tables of the period. The first has its length and bubble; the second says
/// what each stage holds and how stale its gradients are.
Table period_table(const ExaminedSchedule& examined);
Table period_stage_table(const ExaminedSchedule& examined);
/// Returns the critical path in words.
std::string critical_path_text(const ExaminedSchedule& examined);
/// Returns remarks on how the times were counted, one paragraph each.
std::vector<std::string> timing_remarks(const Schedule& schedule);

/// Returns a page with all of these tables and texts.
Document timing_page(const ExaminedSchedule& examined);

}  // namespace lockstep::lessons
