#include <algorithm>

#include "lessons/runner/command_line.hpp"
#include "program/backend.hpp"
#include "src/report/version.hpp"
#include "src/text/json.hpp"

namespace lockstep::lessons {

namespace {

Json json_of(const Taken& taken) {
    return Json{{"name", taken.name},
                {"value", taken.value},
                {"meaning", taken.meaning},
                {"suggested", taken.suggested}};
}

Json json_of(const Command& command) {
    Json positionals = Json::array();
    Json options = Json::array();
    for (const Taken& taken : command.takes())
        (taken.is_positional() ? positionals : options).push_back(json_of(taken));
    return Json{{"name", command.name()},
                {"purpose", command.purpose()},
                {"positionals", std::move(positionals)},
                {"options", std::move(options)}};
}

/// Returns whether the command has subcommands; then only these are described.
bool has_commands(const CommandLine& line, const Command& command) {
    return std::ranges::any_of(line.commands(), [&](const Command& other) {
        return other.name().starts_with(command.name() + " ");
    });
}

Json json_of(const std::vector<Setting>& settings) {
    Json list = Json::array();
    for (const Setting& setting : settings)
        list.push_back(Json{{"key", setting.key}, {"meaning", setting.help()}});
    return list;
}

}  // namespace

std::string description() {
    // A command that takes other arguments with --backends has two entries.
    CommandLine plain = command_line({});
    CommandLine with_backends = command_line({"--backends"});
    declare_commands(plain);
    declare_commands(with_backends);
    Json commands = Json::array();
    for (std::size_t i = 0; i < plain.commands().size(); ++i) {
        const Command& command = plain.commands()[i];
        const Command& other = with_backends.commands()[i];
        if (has_commands(plain, command)) continue;
        commands.push_back(json_of(command));
        if (other.purpose() != command.purpose()) commands.push_back(json_of(other));
    }
    Json settings = Json::array();
    settings.push_back(Json{{"lesson", ""}, {"settings", json_of(common_settings())}});
    for (const LessonEntry& lesson : catalogue())
        settings.push_back(
            Json{{"lesson", lesson.slug}, {"settings", json_of(lesson.settings)}});
    return Json{{"version", kVersion},
                {"commands", std::move(commands)},
                {"settings", std::move(settings)},
                {"exit_status", kExitStatus}}
               .dump(1) +
           "\n";
}

}  // namespace lockstep::lessons
