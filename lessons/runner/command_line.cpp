#include "lessons/runner/command_line.hpp"

#include <csignal>

#include <fmt/format.h>

#include "lessons/runner/terminal.hpp"
#include "src/os/environment.hpp"
#include "src/report/version.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

std::string listed(const std::string& head, const std::vector<std::string>& paragraphs) {
    constexpr int kIndent = 4;
    std::string text = head + "\n";
    for (const std::string& paragraph : paragraphs)
        for (const std::string& line : wrap(paragraph, help_columns() - kIndent))
            text += pad_right("", kIndent) + line + "\n";
    return text;
}

int run(const TextRequest& request) {
    print(request.text);
    return kSuccess;
}

CommandLine command_line(std::vector<std::string> words) {
    return CommandLine(
        std::move(words),
        {"lockstep", "Lockstep: a laboratory for understanding distributed training.",
         fmt::format("lockstep {}\n", kVersion), "Exit status: " + kExitStatus});
}

void declare_language(Command& command, std::optional<Language>& language) {
    command.option(
        "--lang", "LANGUAGE", "language of pages, en or zh; default: the locale's",
        choice_into(language, {{"en", Language::english}, {"zh", Language::chinese}}));
    command.suggest({"en", "zh"});
}

Language language_of(std::optional<Language> asked) {
    if (asked) return *asked;
    // In the order of POSIX: the first variable that is set decides.
    for (const char* name : {"LC_ALL", "LC_MESSAGES", "LANG"})
        if (const auto locale = os::variable(name); locale && !locale->empty())
            return language_of_locale(*locale);
    return Language::english;
}

int run_main(int count, char** words,
             const std::function<int(const std::vector<std::string>& words)>& carry_out) {
    guard_standard_streams();
    // If a file exceeds its limit, write() must fail, but the program must not be killed.
    std::signal(SIGXFSZ, SIG_IGN);
    try {
        const std::vector<std::string> arguments(words + (count > 0 ? 1 : 0),
                                                 words + count);
        return carry_out(arguments);
    } catch (...) {
        return report(ending_of_exception());
    }
}

}  // namespace lockstep::lessons
