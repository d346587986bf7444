#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/page/schedule_page.hpp"
#include "lessons/page/terminal_text.hpp"
#include "lessons/runner/command_line.hpp"
#include "lessons/runner/reader.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/chart/svg.hpp"
#include "src/chart/text.hpp"
#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/report/files.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

Take times_into(ScheduleSettings::Times& times) {
    return [&times](const std::string& option, const std::string& value) {
        times = read_times(option, value);
    };
}

Take memory_into(double& memory) {
    return [&memory](const std::string& option, const std::string& value) {
        memory = read_memory(option, value);
    };
}

void declare_times(Command& command, ScheduleRequest& request) {
    command.option("--forward", "T", "a stage's forward of a micro-batch; default 1",
                   times_into(request.forward));
    command.option("--backward-input", "T",
                   "the half of backward that is sent on; default 1",
                   times_into(request.backward_input));
    command.option("--backward-weight", "T",
                   "the half that is the stage's own; default 1",
                   times_into(request.backward_weight));
    command.option("--comm", "T", "a message to another stage; default 0",
                   times_into(request.comm));
}

}  // namespace

void declare_schedule(CommandLine& line) {
    Command& command = line.add(
        "schedule",
        "Times and draws a pipeline schedule: its bubble, what each stage holds, its "
        "critical path. Times are in any unit: one number for all stages, or one a stage "
        "with commas between, as in 1,2,1,1. Exit status 1 if the schedule deadlocks.");
    auto& request = command.asks_for<ScheduleRequest>();
    command.positional("NAME",
                       either(schedule_names()) + ", or the path of a .json or .csv file",
                       text_into(request.name));
    command.suggest(schedule_names());
    command.option("--stages", "P", "devices in a row; a file has its own",
                   whole_into(request.stages, 1, kMostStages));
    command.option("--micro-batches", "M", "parts of a batch; a file has its own",
                   whole_into(request.micro_batches, 1, kMostMicroBatches));
    command.option("--chunks", "V",
                   "parts of the model on a stage, of interleaved; default 1",
                   whole_into(request.chunks, 1, kMostChunks));
    declare_times(command, request);
    command.flag("--messages",
                 "give the schedule its messages, which then go one at a time on each "
                 "stage; without them data takes its time and never waits for other data",
                 request.messages);
    command.option("--memory-activation", "A",
                   "what a stage keeps of a micro-batch until its backward-input, all "
                   "its chunks together; default 1",
                   memory_into(request.kept.activations));
    command.option("--memory-weight", "K",
                   "and then until its backward-weight; default 1",
                   memory_into(request.kept.for_weights));
    command.option("--svg", "FILE", "draw it there as well", path_into(request.svg));
    command.flag("--json", kJsonMeaning, request.json);
    command.finally([&request] { require_known(request); });
}

namespace {

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
                "{} {}: the schedule in {} has {}; a file's sizes are its own",
                size.option, *size.asked, request.name, size.has);
        });
    require(!request.messages || !schedule.has_messages(),
            "--messages: the schedule in {} has messages already", request.name);
    return schedule;
}

/// Says on standard error why the schedule deadlocks. Throws what else is wrong with it.
int explain(const ScheduleRequest& request, const Schedule& schedule,
            const ScheduleProblem& problem) {
    require(!problem.cycle.empty(), [&] { return problem.sentence; });
    if (request.json) print(problem_json(schedule, problem));
    write_all(STDERR_FILENO, "lockstep: " + printable(problem.sentence) + "\n",
              "standard error");
    return kFailed;
}

/// The picture must not take the schedule's place.
void require_other_file(const ScheduleRequest& request) {
    std::error_code ignored;
    require(!std::filesystem::equivalent(*request.svg, request.name, ignored),
            "--svg {}: that is the schedule's own file",
            printable(request.svg->string()));
}

}  // namespace

int run(const ScheduleRequest& request) {
    Schedule schedule = request.is_file() ? loaded(request) : generated_schedule(request);
    if (request.svg && request.is_file()) require_other_file(request);
    const ExaminedSchedule found = examined(request, std::move(schedule));
    if (found.problem) return explain(request, found.schedule, *found.problem);

    const Chart chart = found.chart();
    if (request.svg)
        naming("--svg", *request.svg,
               [&](const auto& path) { write_text_file(path, chart_svg(chart)); });
    if (request.json) {
        print(timing_json(found.schedule, found.timing, found.shown));
        return kSuccess;
    }
    const int width = window_columns(STDOUT_FILENO);
    const bool colour = wants_colour(STDOUT_FILENO);
    print(chart_text(chart, {width, colour, "--svg"}) + "\n");
    Document page = timing_page(found);
    if (request.svg)
        page.push_back({Paragraph{words_of(
            fmt::format("The picture is in {}.", printable(request.svg->string())))}});
    print_document(page);
    print("\n");
    return kSuccess;
}

}  // namespace lockstep::lessons
