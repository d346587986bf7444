#include "program/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "src/cost/cluster_spec.hpp"
#include "src/os/terminal.hpp"
#include "src/text/utf8.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::programs {

namespace {

/// Returns "lockstep assignment new".
std::string full_name(const CLI::App& app) {
    const CLI::App* parent = app.get_parent();
    return (parent == nullptr ? "" : full_name(*parent) + " ") + app.get_name();
}

/// Returns how to call a command: "lockstep assignment new SLUG DIR".
std::string usage_of(const CLI::App& app) {
    std::string usage = full_name(app);
    for (const CLI::Option* option : app.get_options())
        if (option->get_positional())
            usage += option->get_required() ? " " + option->get_name()
                                            : " [" + option->get_name() + "]";
    return usage;
}

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
    return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string paragraph(const std::string& text) {
    std::string lines;
    for (const std::string& line : wrap(text, help_columns()))
        lines += line + "\n";
    return lines;
}

/// Formats CLI11's help to the window's width. The program's help lists its commands,
/// each with the first sentence of its purpose. A command's help includes its
/// subcommands' help.
class HelpFormat : public CLI::Formatter {
  public:
    std::string make_help(const CLI::App* app, std::string,
                          CLI::AppFormatMode) const override {
        const auto commands = subcommands_of(*app);
        const bool program = app->get_parent() == nullptr;
        std::string text = "Usage: " + usage_of(*app) + " ";
        text += commands.empty() ? "[options]" : program ? "COMMAND" : names(commands);
        text += "\n\n";
        if (const std::string purpose = app->get_description(); !purpose.empty())
            text += paragraph(purpose) + "\n";
        for (const CLI::App* command : commands)
            text += program ? summary(*command, app->get_name()) : command->help() + "\n";
        if (commands.empty()) text += options_text(*app);
        return text + app->get_footer();
    }

  private:
    static std::string names(const std::vector<const CLI::App*>& commands) {
        std::string text;
        for (const CLI::App* command : commands)
            text += (text.empty() ? "" : " | ") + command->get_name();
        return text;
    }

    static std::string options_text(const CLI::App& app) {
        std::string text;
        for (const bool positional : {true, false})
            for (const CLI::Option* option : app.get_options()) {
                if (option->get_positional() != positional) continue;
                if (option == app.get_help_ptr()) continue;
                const std::string value = option->get_type_name();
                text +=
                    entry_text(option->get_name() + (value.empty() ? "" : " ") + value,
                               option->get_description());
            }
        return text + entry_text("--help", "this text");
    }

    static std::string summary(const CLI::App& command, const std::string& program) {
        std::string text;
        for (const CLI::App* within : subcommands_of(command))
            text += summary(*within, program);
        if (!text.empty()) return text;
        const std::string purpose = command.get_description();
        const std::size_t end = std::min(purpose.find(". "), purpose.size() - 1);
        return entry_text(usage_of(command).substr(program.size() + 1),
                          purpose.substr(0, end));
    }
};

/// Throws UsageError if a word is left that the command does not accept.
void require_no_extras(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options())
        names.push_back(option->get_name());
    const std::vector<std::string> extras = app.remaining();
    for (const std::string& extra : extras) {
        const std::string name = extra.substr(0, extra.find('='));
        require(extra == "--" || !extra.starts_with("-"), [&] {
            return "unknown option " + printable(name) + did_you_mean(name, names);
        });
    }
    for (const std::string& extra : extras)
        require(extra == "--", "'{}' is one argument too many for {}", printable(extra),
                full_name(app));
}

/// Throws UsageError for an error of CLI11, in our own words.
[[noreturn]] void refuse(const CLI::App& app, const CLI::ParseError& error) {
    if (!app.get_allow_extras()) require_no_extras(app);
    const std::string text = error.what();
    if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
        throw UsageError(fmt::format("{} is missing; see {} --help",
                                     text.substr(0, text.find(' ')), full_name(app)));
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) == nullptr)
        throw UsageError(printable(text));
    for (const CLI::Option* option : app.get_options())
        require(option->count() < 2 ||
                    option->get_multi_option_policy() != CLI::MultiOptionPolicy::Throw,
                "{} is given twice", option->get_name());
    if (text.ends_with("disallowed flag override"))
        throw UsageError("--" + text.substr(0, text.find(' ')) +
                         ": this option takes no value");
    throw UsageError(text.substr(0, text.find(':')) + ": a value is missing");
}

/// Throws UsageError, because `app` has no command of this name.
[[noreturn]] void refuse_name(const CLI::App& app, const std::string& name) {
    std::vector<std::string> known;
    for (const CLI::App* command : subcommands_of(app))
        known.push_back(command->get_name());
    if (app.get_parent() == nullptr)
        throw UsageError(
            fmt::format("unknown {} '{}'; there are {}, --help and --version",
                        name.starts_with("-") ? "option" : "command", printable(name),
                        fmt::join(known, ", ")));
    require(!name.empty(), "{}: {} must follow", full_name(app), either(known));
    throw UsageError(fmt::format("{}: '{}' is not {}{}", full_name(app), printable(name),
                                 either(known), did_you_mean(name, known)));
}

/// Returns the command of this name within `app`, or nullptr.
CLI::App* command_called(CLI::App& app, const std::string& name) {
    const auto found =
        app.get_subcommands([&name](CLI::App* each) { return each->get_name() == name; });
    return found.empty() ? nullptr : found.front();
}

CLI::Option* declare(CLI::App& app, const std::string& name, const std::string& meaning,
                     Take take) {
    return app.add_option(
        name,
        CLI::callback_t([name, take = std::move(take)](const CLI::results_t& values) {
            for (const std::string& value : values)
                take(name, value);
            return true;
        }),
        meaning);
}

}  // namespace

void require_not_read(const std::string& option, const std::filesystem::path& path,
                      const std::filesystem::path& read, const std::string& what) {
    std::error_code ignored;
    require(!std::filesystem::equivalent(path, read, ignored),
            "{} {}: that file belongs to {}; choose another path", option,
            printable(path.string()), what);
}

int help_columns() {
    constexpr int kWidest = 100;  // longer lines are hard to read
    return std::min(os::window_columns(STDOUT_FILENO), kWidest);
}

std::string entry_text(const std::string& name, const std::string& meaning) {
    constexpr int kNames = 22;
    const bool fits = columns_of(name) <= kNames;
    std::string text = fits ? "" : "  " + name + "\n";
    for (const std::string& line : wrap(meaning, help_columns() - kNames - 4))
        text += "  " + pad_right(text.empty() ? name : "", kNames) + "  " + line + "\n";
    return text;
}

void Command::positional(const std::string& name, const std::string& meaning, Take take) {
    takes_.push_back({name, "", meaning});
    declare(app_, name, meaning, std::move(take))->required();
}

void Command::rest(const std::string& name, const std::string& meaning, bool needed,
                   Take take) {
    takes_.push_back({name, "", meaning});
    // CLI11 reads a word as a command's name unless a positional needs the word.
    declare(app_, name, meaning, std::move(take))
        ->expected(needed ? 1 : 0, -1)
        ->required(needed)
        ->allow_extra_args()
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Command::option(const std::string& name, const std::string& value,
                     const std::string& meaning, Take take) {
    takes_.push_back({name, value, meaning});
    declare(app_, name, meaning, std::move(take))->type_name(value);
}

void Command::repeated(const std::string& name, const std::string& value,
                       const std::string& meaning, Take take) {
    takes_.push_back({name, value, meaning});
    declare(app_, name, meaning, std::move(take))
        ->type_name(value)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Command::flag(const std::string& name, const std::string& meaning, bool& field) {
    takes_.push_back({name, "", meaning});
    app_.add_flag_callback(
            name, [&field] { field = true; }, meaning)
        ->disable_flag_override();
}

void Command::suggest(std::vector<std::string> words) {
    takes_.back().suggested = std::move(words);
}

void Command::footer(const std::string& text) {
    app_.footer(text);
}

std::vector<std::string> Command::given() const {
    std::vector<std::string> words;
    for (const CLI::Option* option : app_.get_options())
        for (const std::string& value : option->results())
            if (!option->get_positional())
                words.push_back(option->get_name() + "=" + value);
    return words;
}

std::string Command::help() const {
    return app_.help();
}

Take setting_into(std::map<std::string, std::string>& settings) {
    return [&settings](const std::string& option, const std::string& value) {
        const std::size_t sign = value.find('=');
        require(sign != std::string::npos && sign > 0, "{} {}: KEY=VALUE is expected",
                option, printable(value));
        const bool fresh =
            settings.emplace(value.substr(0, sign), value.substr(sign + 1)).second;
        require(fresh, "{} {}: this setting is given twice", option, printable(value));
    };
}

CommandLine::CommandLine(std::vector<std::string> words, const ProgramText& text)
    : words_(std::move(words)),
      version_(text.version),
      program_(std::make_unique<CLI::App>(text.purpose, text.name)) {
    program_->formatter(std::make_shared<HelpFormat>());
    program_->footer(entry_text("COMMAND --help", "what a command takes") +
                     entry_text("--version", "the version") + "\n" +
                     paragraph(text.ending));
}

CommandLine::~CommandLine() = default;
CommandLine::CommandLine(CommandLine&&) noexcept = default;
CommandLine& CommandLine::operator=(CommandLine&&) noexcept = default;

Command& CommandLine::program() {
    program_->set_help_flag("--help");  // -h may be an option of the program
    return commands_.emplace_back(*program_, "", program_->get_description());
}

Command& CommandLine::add(const std::string& name, const std::string& purpose) {
    const std::size_t space = name.rfind(' ');
    CLI::App* parent = space == std::string::npos
                           ? program_.get()
                           : program_->get_subcommand(name.substr(0, space));
    parent->require_subcommand(1);
    CLI::App& app = *parent->add_subcommand(name.substr(space + 1), purpose);
    app.footer("");  // otherwise the command inherits the program's footer
    return commands_.emplace_back(app, name, purpose);
}

bool CommandLine::has(const std::string& word) const {
    return std::ranges::any_of(words_, [&](const std::string& each) {
        return each == word || each.starts_with(word + "=");
    });
}

CommandLine::Asked CommandLine::read() {
    CLI::App* app = program_.get();
    std::size_t named = 0;  // words that name the command
    while (named < words_.size()) {
        CLI::App* const next = command_called(*app, words_[named]);
        if (next == nullptr) break;
        app = next;
        ++named;
    }
    const std::string first = named < words_.size() ? words_[named] : "";
    if (named > 0 && (has("--help") || has("-h"))) return {nullptr, app->help()};
    if (!subcommands_of(*app).empty()) {
        const bool help = first == "--help" || first == "-h" || first == "help";
        if (words_.empty()) return {nullptr, app->help()};
        if (named > 0 || (!help && first != "--version")) refuse_name(*app, first);
        if (words_.size() > 1)
            throw UsageError(fmt::format("'{}' is one argument too many for {}",
                                         printable(words_[1]), first));
        return {nullptr, help ? app->help() : version_};
    }
    try {
        program_->parse(std::vector<std::string>(words_.rbegin(), words_.rend()));
    } catch (const CLI::ParseError& error) {
        refuse(*app, error);
    }
    const auto command =
        std::ranges::find(commands_, app, [](const Command& each) { return &each.app_; });
    command->finally_();
    return {&*command, ""};
}

std::vector<std::string> CommandLine::read_options(bool all) {
    program_->allow_extras(!all);
    try {
        program_->parse(std::vector<std::string>(words_.rbegin(), words_.rend()));
    } catch (const CLI::ParseError& error) {
        refuse(*program_, error);
    }
    return program_->remaining();
}

void declare_backend(Command& command, Options& options) {
    command.option(
        "--backend", "NAME", "sim (default), cuda, nccl or gpu",
        choice_into(
            options.backend,
            {{"sim", "sim"}, {"cuda", "cuda"}, {"nccl", "nccl"}, {"gpu", "gpu"}}));
    command.suggest({"sim", "cuda", "nccl", "gpu"});
}

void declare_world(Command& command, Options& options, int least, int most) {
    constexpr std::uint64_t kMostSeed = std::numeric_limits<std::uint64_t>::max();
    command.option("--ranks", "N",
                   fmt::format("number of devices, {} to {}", least, most),
                   whole_into(options.ranks, least, most));
    command.option(
        "--dtype", "f32|f64|bf16", "numbers of 32 (default), 64 or 16 bits",
        choice_into(options.dtype,
                    {{"f32", DType::f32}, {"f64", DType::f64}, {"bf16", DType::bf16}}));
    command.option("--seed", "S", "seed of all random numbers; default 1",
                   whole_into(options.seed, std::uint64_t{0}, kMostSeed));
    command.option("--cluster", "NAME|FILE",
                   "what devices and links can do: " + either(cluster_preset_names()) +
                       ", or a JSON file; default classroom",
                   text_into(options.cluster));
    command.suggest(cluster_preset_names());
}

void declare_check(Command& command, Options& options) {
    command.option(
        "--check", "cheap|full",
        "which mistakes to look for: cheap (default) looks for those that cost nothing "
        "to find; full looks for all, takes at most twice the time and needs virtual "
        "devices; full,-F21 leaves out F21, where it is meant",
        [&options](const std::string& option, const std::string& value) {
            const sim::Checks checks = sim::checks_of(option, printable(value));
            options.check = checks.level;
            options.unchecked = checks.without;
        });
}

void declare_out(Command& command, Options& options) {
    command.option("--out", "DIR", "write a record of the run to this folder",
                   path_into(options.out));
}

void declare_settings(Command& command, Options& options, const std::string& where) {
    command.repeated("--set", "KEY=VALUE",
                     "a setting, see " + where + "; may be repeated",
                     setting_into(options.settings));
}

std::string settings_help(const std::string& title,
                          const std::vector<Setting>& settings) {
    if (settings.empty()) return "";
    std::string text = "\n" + title + ":\n";
    for (const Setting& setting : settings)
        text += entry_text(setting.key, setting.help());
    return text;
}

}  // namespace lockstep::programs
