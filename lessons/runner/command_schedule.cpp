#include <algorithm>
#include <numeric>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/runner/command.hpp"
#include "lessons/runner/page_text.hpp"
#include "lessons/runner/schedule_page.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/picture.hpp"
#include "src/pipeline/validate.hpp"
#include "src/report/files.hpp"
#include "src/report/json_text.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

Schedule generated(const ScheduleRequest& request) {
    const PipelineShape shape{*request.stages, *request.micro_batches,
                              request.chunks.value_or(1)};
    try {
        return make_schedule(request.name, shape);
    } catch (const UsageError& error) {
        const std::string chunks =
            request.chunks ? fmt::format(" --chunks {}", shape.chunks) : "";
        throw UsageError(fmt::format("--stages {} --micro-batches {}{}: {}", shape.stages,
                                     shape.micro_batches, chunks, error.what()));
    }
}

Schedule loaded(const ScheduleRequest& request) {
    Schedule schedule = load_schedule(request.name);
    struct Size {
        const char* option;
        std::optional<int> asked;
        int has;
    };
    for (const Size& size :
         {Size{"--stages", request.stages, schedule.stages},
          Size{"--micro-batches", request.micro_batches, schedule.micro_batches},
          Size{"--chunks", request.chunks, schedule.chunks}})
        require(!size.asked || *size.asked == size.has, [&] {
            return fmt::format(
                "{} {}: the schedule in {} has {}; a file's sizes are its "
                "own",
                size.option, *size.asked, request.name, size.has);
        });
    require(!request.messages || !schedule.has_messages(),
            "--messages: the schedule in {} has messages already", request.name);
    return schedule;
}

/// Times as whole numbers, exact: of the largest tick of which all are multiples.
struct Ticks {
    std::vector<StageDurations> durations;
    double per_unit = 1;
};

Ticks ticks_of(const ScheduleRequest& request, const Schedule& schedule) {
    using Times = ScheduleRequest::Times;
    // A chunk takes T / v, so a billionth of the unit is v ticks.
    const std::int64_t v = schedule.chunks;
    std::int64_t unit = ScheduleRequest::kUnit * v;
    std::int64_t common = unit;
    std::size_t entries = 1;
    const std::pair<const char*, const Times*> options[] = {
        {"--forward", &request.forward},
        {"--backward-input", &request.backward_input},
        {"--backward-weight", &request.backward_weight},
        {"--comm", &request.comm}};
    for (const auto& [option, times] : options) {
        const auto stages = static_cast<std::size_t>(schedule.stages);
        require(times->size() == 1 || times->size() == stages,
                "{} has {} numbers; one for all stages, or {}, one a "
                "stage, are expected",
                option, times->size(), stages);
        entries = std::max(entries, times->size());
        for (const std::int64_t time : *times)
            common = std::gcd(common, times == &request.comm ? time * v : time);
    }
    Ticks ticks;
    for (std::size_t stage = 0; stage < entries; ++stage) {
        const auto of = [&](const Times& times, std::int64_t scale) {
            return times[times.size() == 1 ? 0 : stage] * scale / common;
        };
        ticks.durations.push_back({of(request.forward, 1), of(request.backward_input, 1),
                                   of(request.backward_weight, 1), of(request.comm, v)});
    }
    ticks.per_unit = static_cast<double>(unit / common);
    return ticks;
}

std::string deadlock_json(const Schedule& schedule, const ScheduleProblem& problem) {
    std::string cycle;
    for (const Place place : problem.cycle)
        cycle += fmt::format("{}{{\"stage\": {}, \"position\": {}, \"instruction\": {}}}",
                             cycle.empty() ? "" : ",\n  ", place.stage, place.position,
                             json_quoted(text_of(schedule.at(place))));
    return fmt::format("{{\"name\": {},\n \"problem\": {},\n \"cycle\": [{}]}}\n",
                       json_quoted(schedule.name), json_quoted(problem.sentence), cycle);
}

/// Says on standard error why the schedule deadlocks. Throws what else is wrong with it.
int explain(const ScheduleRequest& request, const Schedule& schedule,
            const ScheduleProblem& problem) {
    require(!problem.cycle.empty(), [&] { return problem.sentence; });
    if (request.json) print(deadlock_json(schedule, problem));
    write_all(STDERR_FILENO, "lockstep: " + printable(problem.sentence) + "\n",
              "standard error");
    return kFailed;
}

/// The only thing that timing can refuse in a schedule without a problem.
Timing timed(const Schedule& schedule, const Ticks& ticks) {
    try {
        return time_schedule(schedule, ticks.durations);
    } catch (const UsageError& error) {
        throw UsageError(std::string("--forward, --backward-input, --backward-weight and "
                                     "--comm: ") +
                         error.what());
    }
}

/// Of each chunk, since what is asked for is a stage's.
KeptMemory kept_by_chunk(const ScheduleRequest& request, const Schedule& schedule) {
    return {request.kept.activations / schedule.chunks,
            request.kept.for_weights / schedule.chunks};
}

SchedulePictureOptions picture_options(const ScheduleRequest& request,
                                       const Schedule& schedule, double ticks) {
    constexpr int kNarrowest = 40;
    SchedulePictureOptions options;
    options.title =
        fmt::format("{}: {} stage{}, {} micro-batch{}", printable(schedule.name),
                    schedule.stages, schedule.stages == 1 ? "" : "s",
                    schedule.micro_batches, schedule.micro_batches == 1 ? "" : "es");
    if (schedule.chunks > 1)
        options.title += fmt::format(", {} chunks a stage", schedule.chunks);
    options.width = std::max(window_columns(STDOUT_FILENO), kNarrowest);
    options.colour = wants_colour(STDOUT_FILENO);
    // Unless there are units to count, chunks are drawn whole.
    const bool counts_chunks =
        request.kept.activations == 1 && request.kept.for_weights == 1;
    if (!counts_chunks) options.kept = kept_by_chunk(request, schedule);
    options.ticks = ticks;
    return options;
}

void write_svg(const std::filesystem::path& path, const std::string& svg) {
    const std::string option = "--svg " + printable(path.string());
    try {
        // A device would be replaced by the file.
        require(!std::filesystem::exists(path) || std::filesystem::is_regular_file(path),
                [&] { return option + ": what is there is not a file"; });
        write_text_file(path, svg);
    } catch (const std::system_error& error) {
        throw std::system_error(error.code(), option);
    }
}

/// The picture must not take the schedule's place.
void require_other_file(const ScheduleRequest& request) {
    std::error_code ignored;
    require(!std::filesystem::equivalent(*request.svg, request.name, ignored),
            "--svg {}: that is the schedule's own file",
            printable(request.svg->string()));
}

}  // namespace

int show_schedule(const ScheduleRequest& request) {
    Schedule schedule = request.is_file() ? loaded(request) : generated(request);
    if (request.svg && request.is_file()) require_other_file(request);
    const Ticks ticks = ticks_of(request, schedule);
    if (const auto problem = find_problem(schedule))
        return explain(request, schedule, *problem);
    const Timing plan = timed(schedule, ticks);
    if (request.messages) schedule = with_messages(schedule, ticks.durations);
    const Timing timing = request.messages ? timed(schedule, ticks) : plan;

    const TimingJsonOptions shown{ticks.durations, ticks.per_unit,
                                  kept_by_chunk(request, schedule)};
    const SchedulePictureOptions picture =
        picture_options(request, schedule, ticks.per_unit);
    if (request.svg) write_svg(*request.svg, schedule_svg(schedule, timing, picture));
    if (request.json) {
        print(timing_json(schedule, timing, shown));
        return kSuccess;
    }
    print(schedule_text(schedule, timing, picture) + "\n");
    Record record;
    TextPage page({window_columns(STDOUT_FILENO), picture.colour, false}, record, print);
    show_timing(page, schedule, timing, shown);
    if (request.svg)
        page.text(fmt::format("The picture is in {}.", printable(request.svg->string())));
    return kSuccess;
}

}  // namespace lockstep::lessons
