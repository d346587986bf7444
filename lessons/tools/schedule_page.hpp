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

// What `lockstep schedule` and the book's page on pipelines say about a schedule. Neither
// a terminal nor a file is needed for it, so that it runs in a browser, too.

/// Says how a schedule is given its messages.
enum class MessagesAs : std::uint8_t { none, planned, groups, in_place, by_direction };

/// Says which schedule is meant, and how long things take. What is not said is as the
/// schedule's file has it, or else as Durations and KeptMemory have it.
struct ScheduleSettings {
    /// In billionths of the unit that the user has in mind: one for all stages, or one
    /// a stage.
    using Times = WrittenTimes::Amounts;

    std::string name;  ///< of a generator, or the path of a file
    std::optional<int> stages;
    std::optional<int> micro_batches;
    std::optional<int> chunks;
    std::optional<int> per_update;  ///< micro-batches
    /// By the names that WrittenTimes has. Computations are of a stage's chunks together,
    /// as is what overlaps.
    std::map<std::string, Times> times;
    MessagesAs messages = MessagesAs::none;
    /// They are of a stage, all its chunks together.
    std::optional<double> memory_activation;
    std::optional<double> memory_weight;
    /// Then the best order of the same work is searched for in which no stage holds more.
    std::optional<double> limit;

    bool is_file() const;
    PipelineShape shape() const;  ///< if stages and micro-batches are known
};

/// Reads "1,2.5,1", the value of an option. Throws UsageError that names both.
ScheduleSettings::Times read_times(const std::string& option, const std::string& value);
/// Reads the time of a whole backward likewise, of which each half takes half.
void read_backward(const std::string& option, const std::string& value,
                   ScheduleSettings& settings);
/// "planned", "groups", "in-place", "by-direction"; throws UsageError for another word.
MessagesAs read_messages_as(const std::string& option, const std::string& value);
/// Reads an amount of memory likewise.
double read_memory(const std::string& option, const std::string& value);

/// A generator has a name, and needs sizes; a file has its own. Throws UsageError for a
/// name that is neither's, and if a size is missing.
void require_known(const ScheduleSettings& settings);

/// Returns what the generator of that name makes. Throws UsageError if it cannot be.
Schedule generated_schedule(const ScheduleSettings& settings);

/// A schedule with its times, or with what is wrong with it.
struct ExaminedSchedule {
    Schedule schedule;
    std::optional<ScheduleProblem> problem;  ///< then nothing is timed
    Timing timing;
    std::optional<PeriodTiming> period;  ///< if its middle can repeat for ever
    std::string no_period = {};          ///< why it is not known then, if it is not
    std::optional<double> limit;         ///< under which its order was searched for
    std::vector<KnownOrder> known;       ///< other orders of its work, if it was
    TimingJsonOptions shown;
    SchedulePicture picture;

    /// The picture; this must outlive it.
    Chart chart() const { return schedule_chart(schedule, timing, picture); }
    SchedulePicture period_picture = {};
    /// That of the period, if there is one; likewise.
    Chart chart_of_period() const {
        return schedule_chart(period->sent, period->timing, period_picture);
    }
};

/// Times the schedule as the settings and its file say, with its messages if they ask for
/// them. Throws UsageError for times that do not go with its stages or its file's, or
/// that cannot be counted.
ExaminedSchedule examined(const ScheduleSettings& settings, LoadedSchedule loaded);

/// {"name", "problem", "cycle"} as JSON: what `--json` prints of a schedule that cannot
/// run.
std::string problem_json(const Schedule& schedule, const ScheduleProblem& problem);

/// All that is known of its times, and of its period, as one JSON document; `spans`: with
/// when each instruction begins and ends.
std::string examined_json(const ExaminedSchedule& examined, bool spans = false);

/// The order that was searched for beside those that generators have.
Table known_table(const ExaminedSchedule& examined);
/// Makespan, bubble, utilisation, in the unit that is shown.
Table bubble_table(const ExaminedSchedule& examined);
/// Returns a table of what each stage does and holds.
Table stage_table(const ExaminedSchedule& examined);
/// The period's length and bubble; and what each stage holds in it, and how stale its
/// gradients are.
Table period_table(const ExaminedSchedule& examined);
Table period_stage_table(const ExaminedSchedule& examined);
/// The critical path in words.
std::string critical_path_text(const ExaminedSchedule& examined);
/// Returns what is to be known of how the times were counted; a paragraph each.
std::vector<std::string> timing_remarks(const Schedule& schedule);

/// All of these.
Document timing_page(const ExaminedSchedule& examined);

}  // namespace lockstep::lessons
