#include "lessons/runner/arguments.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/text/names.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

/// CLI11 finds what belongs to which option and writes the help; what to say of a mistake
/// is decided here, so it is told to let everything pass.
void describe(CLI::App& app, const CommandText& command) {
    app.allow_extras();
    app.set_help_flag("-h,--help");
    for (const PositionalText& positional : command.positionals)
        app.add_option(positional.name, positional.meaning)->allow_extra_args(false);
    for (const OptionText& option : command.options) {
        if (option.value.empty()) {
            app.add_flag(option.name, option.meaning);
        } else {
            app.add_option(option.name, option.meaning)
                ->allow_extra_args(false)
                ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
        }
    }
}

void refuse_extras(const std::vector<std::string>& extras, const CommandText& command) {
    std::vector<std::string> names{"--help"};
    for (const OptionText& option : command.options)
        names.push_back(option.name);
    for (const std::string& extra : extras) {
        if (extra == "--") continue;
        const std::string name = extra.substr(0, extra.find('='));
        const bool known = std::find(names.begin(), names.end(), name) != names.end();
        require(!known, "{}: this option takes no value", name);
        require(!name.starts_with("-"), "unknown option {}{}", printable(name),
                did_you_mean(name, names));
    }
    for (const std::string& extra : extras)
        require(extra == "--", "'{}' is one argument too many for {}", printable(extra),
                command.name);
}

void parse(CLI::App& app, std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());
    try {
        app.parse(std::move(arguments));
    } catch (const CLI::ArgumentMismatch& error) {
        // Its text begins with the option's name.
        const std::string text = error.what();
        throw UsageError(text.substr(0, text.find(':')) + ": a value is missing");
    } catch (const CLI::Success&) {
        throw;
    } catch (const CLI::ParseError& error) {
        throw UsageError(printable(error.what()));
    }
}

}  // namespace

std::optional<std::string> Arguments::value(const std::string& option) const {
    const auto found = options.find(option);
    if (found == options.end()) return std::nullopt;
    return found->second.front();
}

std::vector<std::string> Arguments::values(const std::string& option) const {
    const auto found = options.find(option);
    return found == options.end() ? std::vector<std::string>{} : found->second;
}

Arguments take_apart(const CommandText& command,
                     const std::vector<std::string>& arguments) {
    CLI::App app(command.purpose, command.name);
    describe(app, command);
    Arguments found;
    try {
        parse(app, arguments);
    } catch (const CLI::CallForHelp&) {
        found.help = true;
    }
    if (!found.help) refuse_extras(app.remaining(), command);
    for (const PositionalText& positional : command.positionals)
        for (const std::string& value : app.get_option(positional.name)->results())
            found.positionals.push_back(value);
    for (const OptionText& option : command.options) {
        const CLI::Option* given = app.get_option(option.name);
        if (given->count() == 0) continue;
        require(given->count() == 1 || option.repeats || option.value.empty(),
                [&] { return option.name + " is given twice"; });
        const std::vector<std::string>& values = given->results();
        const bool bare = std::all_of(values.begin(), values.end(),
                                      [](const std::string& v) { return v == "true"; });
        require(bare || !option.value.empty(),
                [&] { return option.name + ": this option takes no value"; });
        found.options[option.name] = values;
    }
    require(found.help || found.positionals.size() == command.positionals.size(), [&] {
        return fmt::format("{} is missing; {} --help shows what there is",
                           command.positionals[found.positionals.size()].name,
                           command.name);
    });
    return found;
}

}  // namespace lockstep::lessons
