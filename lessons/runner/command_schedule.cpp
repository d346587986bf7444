#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/page/terminal_text.hpp"
#include "lessons/runner/command_line.hpp"
#include "lessons/runner/reader.hpp"
#include "lessons/runner/terminal.hpp"
#include "lessons/tools/schedule_page.hpp"
#include "src/chart/svg.hpp"
#include "src/chart/text.hpp"
#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/pytorch_schedule.hpp"
#include "src/report/files.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

/// Stores the times under the option's name.
Take times_into(ScheduleRequest& request, const char* name) {
    return [&request, name](const std::string& option, const std::string& value) {
        request.times[name] = read_times(option, value);
    };
}

Take memory_into(std::optional<double>& memory) {
    return [&memory](const std::string& option, const std::string& value) {
        memory = read_memory(option, value);
    };
}

void declare_times(Command& command, ScheduleRequest& request) {
    const auto times = [&](const char* option, const char* name, const char* meaning) {
        command.option(option, "T", meaning, times_into(request, name));
    };
    times("--forward", "forward", "a stage's forward of a micro-batch; default 1");
    command.option("--backward", "T", "its backward; each half takes half of this time",
                   [&request](const std::string& option, const std::string& value) {
                       read_backward(option, value, request);
                   });
    times("--backward-input", "backward_input",
          "the half of backward for the inputs, whose result is sent on; default 1");
    times("--backward-weight", "backward_weight",
          "the half of backward for the weights; default 1");
    times("--recompute", "recompute", "forward once more, as backward begins; default 0");
    times("--overlapped", "overlapped",
          "a forward and a backward in a pair; default the sum of both");
    times("--comm", "message", "a message to another stage; default 0");
    times("--reduce", "reduce", "a reduction of gradients (R); default 0");
    times("--update", "update", "an update of weights (U); default 0");
}

void declare_files(Command& command, ScheduleRequest& request) {
    command.option("--svg", "FILE", "also draw it to this file", path_into(request.svg));
    command.option("--svg-period", "FILE",
                   "draw one period of it to this file, if its middle can repeat forever",
                   path_into(request.svg_period));
    command.option("--csv", "FILE", "write the schedule to this file, one line per stage",
                   path_into(request.csv));
    command.option("--pytorch", "FILE",
                   "write it to this file in the format of torch.distributed.pipelining, "
                   "without updates of weights",
                   path_into(request.pytorch));
}

}  // namespace

void declare_schedule(CommandLine& line) {
    Command& command = line.add(
        "schedule",
        "Times and draws a pipeline schedule: its bubble, what each stage holds, its "
        "critical path. Times are in any unit: one number for all stages, or one per "
        "stage, separated by commas (1,2,1,1). Exit status 1 if the schedule deadlocks.");
    auto& request = command.asks_for<ScheduleRequest>();
    command.positional("NAME",
                       either(schedule_names()) + ", or the path of a .json or .csv file",
                       text_into(request.name));
    command.suggest(schedule_names());
    command.option("--stages", "P", "number of stages (devices); a file has its own",
                   whole_into(request.stages, 1, kMostStages));
    command.option("--micro-batches", "M", "number of micro-batches; a file has its own",
                   whole_into(request.micro_batches, 1, kMostMicroBatches));
    command.option("--chunks", "V",
                   fmt::format("parts of the model on each stage, for {}; default 1, or "
                               "the schedule's own",
                               fmt::join(schedules_of_many_chunks(), ", ")),
                   whole_into(request.chunks, 1, kMostChunks));
    command.option("--per-update", "K",
                   "micro-batches between two updates of the weights; default: all, or "
                   "the schedule's own number if it has no flush",
                   whole_into(request.per_update, 1, kMostMicroBatches));
    declare_times(command, request);
    command.flag("--messages",
                 "add messages: each stage then sends or receives one at a time; without "
                 "messages, data arrives after its delay and never waits for other data",
                 request.with_messages);
    command.option("--messages-as", "HOW",
                   "add messages: planned, as --messages does; groups, as Megatron-LM "
                   "sends and receives; in-place, each receive right before its use; "
                   "by-direction, the same with a queue for each direction",
                   [&request](const std::string& option, const std::string& value) {
                       request.messages = read_messages_as(option, value);
                   });
    command.option("--memory-activation", "A",
                   "memory that a stage, with all its chunks, keeps for each micro-batch "
                   "until backward-input; default 1",
                   memory_into(request.memory_activation));
    command.option("--memory-weight", "K",
                   "the same, from backward-input until backward-weight; default 1",
                   memory_into(request.memory_weight));
    command.option("--limit", "M",
                   "search for an order of the same work in which no stage holds more "
                   "than M memory, with the least bubble; compare it with known orders",
                   memory_into(request.limit));
    declare_files(command, request);
    command.flag("--json", kJsonMeaning, request.json);
    command.flag("--spans",
                 "with --json: also when each instruction begins and ends (long for "
                 "large schedules)",
                 request.spans);
    command.finally([&request] {
        require_known(request);
        require(request.json || !request.spans, "--spans needs --json");
        require(!request.with_messages || request.messages == MessagesAs::none,
                "use --messages or --messages-as, not both");
    });
}

namespace {

LoadedSchedule loaded(const ScheduleRequest& request) {
    LoadedSchedule file = load_schedule(request.name);
    const Schedule& schedule = file.schedule;
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
                "{} {}: the schedule in {} has {}; options cannot change a file's sizes",
                size.option, *size.asked, request.name, size.has);
        });
    require(!request.per_update, "--per-update: options cannot change the updates in {}",
            request.name);
    require(request.messages == MessagesAs::none || !schedule.has_messages(),
            "--messages: the schedule in {} has messages already", request.name);
    return file;
}

/// Prints on standard error why the schedule deadlocks. Throws UsageError for any other
/// problem.
int explain(const ScheduleRequest& request, const Schedule& schedule,
            const ScheduleProblem& problem) {
    require(!problem.cycle.empty(), [&] { return problem.sentence; });
    if (request.json) print(problem_json(schedule, problem));
    write_all(STDERR_FILENO, "lockstep: " + printable(problem.sentence) + "\n",
              "standard error");
    return kFailed;
}

using MaybePath = std::optional<std::filesystem::path>;

/// Refuses to overwrite the schedule's own file, or to write one file twice.
void require_other_files(const ScheduleRequest& request) {
    std::map<std::filesystem::path, const char*> asked;
    const auto check = [&](const char* option, const MaybePath& file) {
        if (!file) return;
        const std::string shown = printable(file->string());
        std::error_code ignored;
        require(!request.is_file() ||
                    !std::filesystem::equivalent(*file, request.name, ignored),
                "{} {}: that file belongs to the schedule; choose another path", option,
                shown);
        const auto [other, fresh] =
            asked.emplace(std::filesystem::absolute(*file).lexically_normal(), option);
        require(fresh, "{} {}: {} writes there, too", option, shown, other->second);
    };
    check("--svg", request.svg);
    check("--svg-period", request.svg_period);
    check("--csv", request.csv);
    check("--pytorch", request.pytorch);
}

struct NewFile {
    const char* option;
    std::filesystem::path path;
    std::string text;
};

/// Makes the contents of the files that are asked for. Throws UsageError if the contents
/// of a file cannot be made.
std::vector<NewFile> new_files(const ScheduleRequest& request,
                               const ExaminedSchedule& found) {
    require(!request.svg_period || found.period.has_value(), [&] {
        return fmt::format("--svg-period: schedule '{}' has no period{}",
                           printable(found.schedule.name),
                           found.no_period.empty() ? "" : ": " + found.no_period);
    });
    std::vector<NewFile> files;
    const auto add = [&](const char* option, const MaybePath& path, const auto& text) {
        if (path) files.push_back({option, *path, text()});
    };
    add("--svg", request.svg, [&] { return chart_svg(found.chart()); });
    add("--svg-period", request.svg_period,
        [&] { return chart_svg(found.chart_of_period()); });
    add("--csv", request.csv, [&] { return schedule_csv(found.schedule); });
    add("--pytorch", request.pytorch, [&] { return pytorch_csv(found.schedule); });
    return files;
}

}  // namespace

int run(const ScheduleRequest& request) {
    ScheduleRequest settled = request;
    if (settled.with_messages && settled.messages == MessagesAs::none)
        settled.messages = MessagesAs::planned;
    LoadedSchedule schedule = settled.is_file()
                                  ? loaded(settled)
                                  : LoadedSchedule{generated_schedule(settled), {}, {}};
    require_other_files(settled);
    const ExaminedSchedule found = examined(settled, std::move(schedule));
    if (found.problem) return explain(settled, found.schedule, *found.problem);

    // Make all contents before the first file is written.
    for (const NewFile& file : new_files(settled, found))
        naming(file.option, file.path,
               [&](const auto& path) { write_text_file(path, file.text); });
    if (settled.json) {
        print(examined_json(found, settled.spans));
        return kSuccess;
    }
    const int width = window_columns(STDOUT_FILENO);
    const bool colour = wants_colour(STDOUT_FILENO);
    print(chart_text(found.chart(), {width, colour, "--svg"}) + "\n");
    if (found.period)
        print(chart_text(found.chart_of_period(), {width, colour, "--svg-period"}) +
              "\n");
    print_found(timing_page(found), settled.svg);
    return kSuccess;
}

}  // namespace lockstep::lessons
