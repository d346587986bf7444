#pragma once

#include <algorithm>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "lessons/runner/command.hpp"
#include "src/core/require.hpp"
#include "src/text/names.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace lockstep::lessons {

/// Takes the value of an option or a positional: reads it into its field of the request,
/// or throws UsageError with a sentence that names option and value.
using Take = std::function<void(const std::string& option, const std::string& value)>;

/// Takes any text.
template <typename Text>
Take text_into(Text& field) {
    return [&field](const std::string&, const std::string& value) { field = value; };
}

/// Takes the path of a file or folder, into a path or into one that may be absent.
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

/// Takes one of these words, each of which stands for a value.
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

/// A command of the program, as it is declared: what it takes, and into which fields.
class Command {
  public:
    explicit Command(CLI::App& app) : app_(app) {}

    /// The request that the command makes, to be filled by what it takes.
    template <typename R>
    R& asks_for() {
        return request_.emplace<R>();
    }

    // `meaning` is what help says.

    /// A word without an option's name; it has to be there.
    void positional(const std::string& name, const std::string& meaning, Take take);
    /// "--ranks N".
    void option(const std::string& name, const std::string& value,
                const std::string& meaning, Take take);
    /// An option that may be given several times.
    void repeated(const std::string& name, const std::string& value,
                  const std::string& meaning, Take take);
    void flag(const std::string& name, const std::string& meaning, bool& field);
    /// Adds what help says at its end.
    void footer(const std::string& text);
    /// `check` is called when all that was given has been taken.
    void finally(std::function<void()> check) { finally_ = std::move(check); }

    /// Returns the options that were given, as words: "--ranks=4".
    std::vector<std::string> given() const;
    std::string help() const;

  private:
    friend class CommandLine;

    CLI::App& app_;
    Request request_;
    std::function<void()> finally_ = [] {};
};

/// The words of a command line, and the commands that they may ask for.
class CommandLine {
  public:
    explicit CommandLine(std::vector<std::string> words);
    ~CommandLine();
    CommandLine(const CommandLine&) = delete;
    CommandLine& operator=(const CommandLine&) = delete;

    /// Declares a command; "assignment new" lies inside "assignment".
    Command& add(const std::string& name, const std::string& purpose);
    const std::vector<std::string>& words() const { return words_; }
    /// Returns whether this is among the words; an option counts with its value, too.
    bool has(const std::string& word) const;
    /// Returns the request of the command that the words name.
    Request read();

  private:
    std::vector<std::string> words_;
    std::unique_ptr<CLI::App> program_;
    std::deque<Command> commands_;
};

// Each command is declared in the file that runs it.

void declare_lessons(CommandLine& line);
void declare_lesson(CommandLine& line);
void declare_compare(CommandLine& line);
void declare_schedule(CommandLine& line);
void declare_fault(CommandLine& line);
void declare_assignment(CommandLine& line);
void declare_grade(CommandLine& line);
void declare_doctor(CommandLine& line);

/// Declares what decides what a lesson runs, but for its backend; other commands that run
/// a lesson take the same. The lesson is the one that is named in the line.
void declare_lesson_options(Command& command, LessonOptions& options,
                            const CommandLine& line);

/// Says what --json means in every command.
inline const std::string kJsonMeaning = "print one JSON document and nothing else";

/// Calls `action` with a path that an option gave; what is wrong with the path is then
/// said of the option.
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

/// Columns for help and lists on standard output.
int help_columns();

/// Returns a list's entry: its head, and below it paragraphs, indented.
std::string listed(const std::string& head, const std::vector<std::string>& paragraphs);

/// Returns "  name        meaning", with the meaning's lines below one another.
std::string entry_text(const std::string& name, const std::string& meaning);

}  // namespace lockstep::lessons
