#include "lessons/runner/request_text.hpp"

#include <algorithm>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/grader/report/write_grade.hpp"
#include "lessons/runner/help_text.hpp"
#include "lessons/runner/settings.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/cost/cluster_spec.hpp"
#include "src/pipeline/generators.hpp"
#include "src/report/version.hpp"
#include "src/text/names.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

int help_columns() {
    return std::min(window_columns(STDOUT_FILENO), 100);
}

std::string version_text() {
    return fmt::format("lockstep {}\n", kVersion);
}

std::string program_text(int width) {
    std::string text =
        "Lockstep: a laboratory for understanding distributed training.\n\n"
        "Usage: lockstep COMMAND\n\n";
    for (const auto& [command, meaning] : std::vector<PositionalText>{
             {"lessons", "the lessons there are"},
             {"lesson SLUG", "runs a lesson, step by step on a terminal"},
             {"compare DIR_A DIR_B",
              "compares the records of two runs, tensor by tensor"},
             {"compare SLUG --backends A,B",
              "runs a lesson on two backends and compares"},
             {"schedule NAME", "times and draws a pipeline schedule"},
             {"fault F16", "explains a kind of mistake that a program can make"},
             {"assignment list", "the assignments there are"},
             {"assignment new SLUG DIR", "hands one out: a folder to work in"},
             {"grade SLUG DIR", "builds what is in a folder, and grades it"},
             {"doctor", "what this machine can do, and what is missing for the rest"},
             {"COMMAND --help", "what a command takes"},
             {"--version", "the version"}})
        text += entry_text(command, meaning, width);
    text += "\n";
    for (const std::string& line :
         wrap("Exit status: 0; 1 a check or a comparison failed, or a program was found "
              "at fault; 2 wrong usage; 3 the machine lacks something; 4 a mistake of "
              "Lockstep "
              "itself.",
              width))
        text += line + "\n";
    return text;
}

CommandText lessons_command_text() {
    return {"lockstep lessons", "Lists the lessons, in the order of the course.", {}, {}};
}

namespace {

/// What decides what a lesson runs; other commands that run one take the same.
std::vector<OptionText> lesson_options_text() {
    return {{"--step", "K", "show this step alone"},
            {"--ranks", "N", "number of devices"},
            {"--dtype", "f32|f64", "numbers of 32 (default) or 64 bits"},
            {"--seed", "S", "of all random numbers; default 1"},
            {"--cluster", "NAME|FILE",
             "what devices and links can do: " + either(cluster_preset_names()) +
                 ", or a JSON file; default classroom"},
            {"--text", "FILE", "UTF-8 text to train on"},
            {"--data", "FILE", "CSV of numbers to train on"},
            {"--check", "cheap|full",
             "which mistakes are looked for: those that cost nothing to find (default), "
             "or all, in at most twice the time; full needs virtual devices"},
            {"--set", "KEY=VALUE",
             "a setting, see `lockstep lesson --help`; may be repeated", true}};
}

const OptionText kBound{"--bound", "X",
                        "largest relative difference; 0 asks for the same bits"};
const OptionText kJson{"--json", "", "print one JSON document and nothing else"};

}  // namespace

CommandText lesson_command_text() {
    CommandText command{
        "lockstep lesson",
        "Runs a lesson. On a terminal it waits after each step; in a pipe "
        "it runs through.",
        {{"SLUG", "which lesson"}},
        lesson_options_text()};
    std::vector<OptionText>& options = command.options;
    options.insert(options.begin() + 1,
                   {"--backend", "NAME", "sim (default), cuda, nccl or gpu"});
    options.back().meaning = "a setting, see below; may be repeated";
    options.push_back({"--out", "DIR", "leave a record of the run there"});
    options.push_back(kJson);
    return command;
}

CommandText compare_command_text() {
    return {"lockstep compare",
            "Compares the outputs of two records. Exit status 1 where they differ by "
            "more than the bound.",
            {{"DIR_A", "the record of a run"}, {"DIR_B", "that of another"}},
            {{"--backends", "A,B", "runs a lesson instead, see below"}, kBound, kJson}};
}

CommandText compare_backends_command_text() {
    CommandText command{"lockstep compare",
                        "Runs a lesson on two backends and compares the outputs. Exit "
                        "status 1 where they differ by more than the bound or a check of "
                        "the lesson failed.",
                        {{"SLUG", "which lesson"}},
                        lesson_options_text()};
    std::vector<OptionText>& options = command.options;
    options.insert(options.begin(),
                   {"--backends", "A,B", "two of sim, cuda, nccl and gpu: sim,gpu"});
    options.push_back({"--out", "DIR", "leave the two records there"});
    options.push_back(kBound);
    options.push_back(kJson);
    return command;
}

CommandText schedule_command_text() {
    return {
        "lockstep schedule",
        "Times and draws a pipeline schedule: its bubble, what each stage holds, its "
        "critical path. Times are in any unit: one number for all stages, or one a stage "
        "with commas between, as in 1,2,1,1. Exit status 1 where the schedule deadlocks.",
        {{"NAME", either(schedule_names()) + ", or the path of a .json or .csv file"}},
        {{"--stages", "P", "devices in a row; a file has its own"},
         {"--micro-batches", "M", "parts of a batch; a file has its own"},
         {"--chunks", "V", "parts of the model on a stage, of interleaved; default 1"},
         {"--forward", "T", "a stage's forward of a micro-batch; default 1"},
         {"--backward-input", "T", "the half of backward that is sent on; default 1"},
         {"--backward-weight", "T", "the half that is the stage's own; default 1"},
         {"--comm", "T", "a message to another stage; default 0"},
         {"--messages", "",
          "give the schedule its messages, which then go one at a time on each stage; "
          "without them data takes its time and never waits for other data"},
         {"--memory-activation", "A",
          "what a stage keeps of a micro-batch until its backward-input, all its chunks "
          "together; default 1"},
         {"--memory-weight", "K", "and then until its backward-weight; default 1"},
         {"--svg", "FILE", "draw it there as well"},
         kJson}};
}

CommandText fault_command_text() {
    return {
        "lockstep fault",
        "Shows the page on a kind of mistake: the least program that makes it, what is "
        "printed, why a cluster hangs or lies, and the cure.",
        {{"FAULT", "as a diagnosis names it: F01 to F31; README for all of them"}},
        {}};
}

std::string assignment_text(int width) {
    std::string text = "Usage: lockstep assignment list | new | targets | gradescope\n\n";
    for (const CommandText& command :
         {assignment_list_command_text(), assignment_new_command_text(),
          assignment_targets_command_text(), assignment_gradescope_command_text()})
        text += help_text(command, width) + "\n";
    return text;
}

CommandText assignment_list_command_text() {
    return {"lockstep assignment list",
            "Lists the assignments, in the order of the course.",
            {},
            {}};
}

CommandText assignment_new_command_text() {
    return {"lockstep assignment new",
            "Makes a folder to work on an assignment in. Begin with its README.md.",
            {{"SLUG", "which assignment"}, {"DIR", "a folder that is not there yet"}},
            {}};
}

CommandText assignment_targets_command_text() {
    return {"lockstep assignment targets",
            "For instructors: measures a reference solution, and prints what others are "
            "graded against.",
            {{"SLUG", "which assignment"}, {"DIR", "the reference solution"}},
            {{"--seed", "S", "draws other numbers of ranks, sizes and values; default 1"},
             {"--out", "FILE", "write it there instead"}}};
}

CommandText assignment_gradescope_command_text() {
    return {"lockstep assignment gradescope",
            "For instructors: packs an autograder for Gradescope.",
            {{"SLUG", "which assignment"}, {"FILE", "the .zip to write"}},
            {}};
}

CommandText grade_command_text() {
    return {
        "lockstep grade",
        "Builds what is in a folder, runs it, and grades how it was done. Exit status "
        "1 where points are missing.",
        {{"SLUG", "which assignment"}, {"DIR", "the student's folder"}},
        {{"--format", "NAME", either(grade_format_names()) + "; default text"},
         {"--out", "FILE",
          "write the report there; a report without points comes first, and is "
          "replaced after each criterion"}}};
}

CommandText doctor_command_text() {
    return {"lockstep doctor",
            "Says what this machine can do, and for what is missing what it would give "
            "and how to install it.",
            {},
            {kJson}};
}

std::string settings_text(const std::string& slug, int width) {
    std::string text = "\nSettings (--set KEY=VALUE):\n";
    const auto entry = [width](const Setting& setting) {
        const std::string standard =
            setting.standard.empty() ? "" : fmt::format(" ({})", setting.standard);
        return entry_text(setting.key, setting.meaning + standard, width);
    };
    for (const Setting& setting : common_settings())
        text += entry(setting);
    for (const LessonEntry& lesson : catalogue()) {
        if (lesson.slug != slug || lesson.settings.empty()) continue;
        text += fmt::format("\nSettings of {}:\n", slug);
        for (const Setting& setting : lesson.settings)
            text += entry(setting);
    }
    return text;
}

}  // namespace lockstep::lessons
