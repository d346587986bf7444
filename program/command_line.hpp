#pragma once

#include <algorithm>
#include <any>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "program/options.hpp"
#include "src/core/require.hpp"
#include "src/text/names.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace lockstep::programs {

/// Reads the value of an option or a positional into its field of the request. Throws
/// UsageError for a wrong value; the message names the option and the value.
using Take = std::function<void(const std::string& option, const std::string& value)>;

/// Takes any text.
template <typename Text>
Take text_into(Text& field) {
    return [&field](const std::string&, const std::string& value) { field = value; };
}

/// Takes the path of a file or folder. The field is a path or an optional path.
template <typename Path>
Take path_into(Path& field) {
    return [&field](const std::string& option, const std::string& value) {
        require(!value.empty(), "{}: a path is expected", option);
        field = value;
    };
}

/// Takes a whole number.
template <typename Field, typename Number>
Take whole_into(Field& field, Number least, Number most) {
    return [&field, least, most](const std::string& option, const std::string& value) {
        field = whole_number(option, value, least, most);
    };
}

/// Takes KEY=VALUE. Whether the setting exists is checked later, when all settings are
/// declared.
Take setting_into(std::map<std::string, std::string>& settings);

/// Takes one of these words; each word stands for a value.
template <typename Field>
Take choice_into(
    Field& field,
    std::type_identity_t<std::vector<std::pair<std::string, Field>>> choices) {
    return [&field, choices](const std::string& option, const std::string& value) {
        std::vector<std::string> words;
        for (const auto& [word, meant] : choices) {
            words.push_back(word);
            if (word == value) field = meant;
        }
        require(std::ranges::find(words, value) != words.end(), "{} {}: {} is expected",
                option, printable(value), either(words));
    };
}

/// A positional, an option or a flag that a command accepts, as help shows it.
struct Taken {
    std::string name;                         ///< "SLUG", or with dashes "--ranks"
    std::string value;                        ///< "N"; empty for positionals and flags
    std::string meaning;                      ///< what help says
    std::vector<std::string> suggested = {};  ///< words that a shell may offer

    bool is_positional() const { return !name.starts_with("-"); }
};

/// Declares a program or a command: its options and arguments with their fields.
class Command {
  public:
    Command(CLI::App& app, std::string name, std::string purpose)
        : app_(app), name_(std::move(name)), purpose_(std::move(purpose)) {}

    /// The command's request; the words after the command fill the request's fields.
    template <typename R>
    R& asks_for() {
        return request_.emplace<R>();
    }
    const std::any& request() const { return request_; }

    // In the next functions, `meaning` is the text for help.

    /// A word without an option's name; it is required.
    void positional(const std::string& name, const std::string& meaning, Take take);
    /// All remaining words. If `needed`, at least one word must remain.
    void rest(const std::string& name, const std::string& meaning, bool needed,
              Take take);
    /// "--ranks N".
    void option(const std::string& name, const std::string& value,
                const std::string& meaning, Take take);
    /// An option that may be given several times.
    void repeated(const std::string& name, const std::string& value,
                  const std::string& meaning, Take take);
    void flag(const std::string& name, const std::string& meaning, bool& field);
    /// Says which words a shell may offer for the option or positional declared last.
    void suggest(std::vector<std::string> words);
    /// Sets the text at the end of help.
    void footer(const std::string& text);
    /// `check` is called after all given words have been taken.
    void finally(std::function<void()> check) { finally_ = std::move(check); }

    /// Returns the options that were given, as words: "--ranks=4".
    std::vector<std::string> given() const;
    std::string help() const;
    const std::string& name() const { return name_; }  ///< "assignment new"
    const std::string& purpose() const { return purpose_; }
    const std::vector<Taken>& takes() const { return takes_; }

  private:
    friend class CommandLine;

    CLI::App& app_;
    std::string name_;
    std::string purpose_;
    std::vector<Taken> takes_;
    std::any request_;
    std::function<void()> finally_ = [] {};
};

/// The texts that --help and --version print about a program.
struct ProgramText {
    std::string name;     ///< "lockstep"
    std::string purpose;  ///< help begins with it
    std::string version;  ///< what --version prints
    std::string ending;   ///< help ends with it
};

/// The words of a command line, and what they may ask for: commands, or the options of a
/// program without commands.
class CommandLine {
  public:
    CommandLine(std::vector<std::string> words, const ProgramText& text);
    ~CommandLine();
    CommandLine(CommandLine&&) noexcept;
    CommandLine& operator=(CommandLine&&) noexcept;

    /// Declares a command; "assignment new" is inside "assignment".
    Command& add(const std::string& name, const std::string& purpose);
    /// Returns the program itself; a program with options has no commands.
    Command& program();

    const std::vector<std::string>& words() const { return words_; }
    const std::deque<Command>& commands() const { return commands_; }
    /// Returns whether one of the words is `word` or begins with `word` and "=".
    bool has(const std::string& word) const;

    /// The command that the words name; or null and a text to print (help, version).
    struct Asked {
        Command* command = nullptr;
        std::string text;
    };
    /// Finds the command that the first words name, and reads the words after it.
    Asked read();
    /// Reads the words of a program without commands, and returns the unknown words. If
    /// `all` is true, throws UsageError for an unknown word instead.
    std::vector<std::string> read_options(bool all);

  private:
    std::vector<std::string> words_;
    std::string version_;
    std::unique_ptr<CLI::App> program_;
    std::deque<Command> commands_;
};

// The options that lessons and users' own programs share.

/// "--backend NAME".
void declare_backend(Command& command, Options& options);
/// --ranks (from `least` to `most`), --dtype, --seed and --cluster.
void declare_world(Command& command, Options& options, int least = 1,
                   int most = sim::ClusterOptions::kMaxRanks);
void declare_check(Command& command, Options& options);
void declare_out(Command& command, Options& options);
/// `where` tells readers where the settings are listed: "below".
void declare_settings(Command& command, Options& options, const std::string& where);

/// Returns the help text of these settings, under a title.
std::string settings_help(const std::string& title, const std::vector<Setting>& settings);

/// Calls `action` with a path that an option gave. Errors about the path then name the
/// option.
template <typename Action>
void naming(const std::string& option, const std::filesystem::path& path,
            Action&& action) {
    try {
        action(path);
    } catch (const UsageError& error) {
        throw UsageError(option + " " + error.what());
    } catch (const std::system_error& error) {
        throw std::system_error(error.code(), option + " " + printable(path.string()));
    }
}

/// Throws UsageError if an option's output path is the input file `read`. `what` names
/// what the input file describes, such as "the cluster".
void require_not_read(const std::string& option, const std::filesystem::path& path,
                      const std::filesystem::path& read, const std::string& what);

/// Returns the width of help and lists on standard output.
int help_columns();

/// Returns "  name        meaning"; the lines of the meaning begin in the same column.
std::string entry_text(const std::string& name, const std::string& meaning);

}  // namespace lockstep::programs
