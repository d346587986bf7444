#include "lessons/runner/request_text.hpp"

#include <fmt/format.h>

#include "lessons/runner/help_text.hpp"
#include "lessons/runner/nearest.hpp"
#include "lessons/runner/settings.hpp"
#include "lessons/runner/text_layout.hpp"
#include "src/cost/cluster_spec.hpp"
#include "src/report/version.hpp"

namespace lockstep::lessons {

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
             {"COMMAND --help", "what a command takes"},
             {"--version", "the version"}})
        text += entry_text(command, meaning, width);
    text += "\n";
    for (const std::string& line :
         wrap("Exit status: 0; 1 a check or a comparison failed, or a program was found "
              "at fault; 2 wrong usage; 3 the machine lacks something.",
              width))
        text += line + "\n";
    return text;
}

CommandText lessons_command_text() {
    return {"lockstep lessons", "Lists the lessons, in the order of the course.", {}, {}};
}

CommandText lesson_command_text() {
    return {"lockstep lesson",
            "Runs a lesson. On a terminal it waits after each step; in a pipe it runs "
            "through.",
            {{"SLUG", "which lesson"}},
            {{"--step", "K", "show this step alone"},
             {"--backend", "NAME", "sim (default), cuda, nccl or gpu"},
             {"--ranks", "N", "number of devices"},
             {"--dtype", "f32|f64", "numbers of 32 (default) or 64 bits"},
             {"--seed", "S", "of all random numbers; default 1"},
             {"--cluster", "NAME|FILE",
              "what devices and links can do: " + either(cluster_preset_names()) +
                  ", or a JSON file; default classroom"},
             {"--text", "FILE", "UTF-8 text to train on"},
             {"--data", "FILE", "CSV of numbers to train on"},
             {"--set", "KEY=VALUE", "a setting, see below; may be repeated", true},
             {"--out", "DIR", "leave a record of the run there"},
             {"--json", "", "print one JSON document and nothing else"}}};
}

CommandText compare_command_text() {
    return {"lockstep compare",
            "Compares the outputs of two records. Exit status 1 where they differ by "
            "more than the bound.",
            {{"DIR_A", "the record of a run"}, {"DIR_B", "that of another"}},
            {{"--bound", "X", "largest relative difference; 0 asks for the same bits"},
             {"--json", "", "print one JSON document and nothing else"}}};
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
