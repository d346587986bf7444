#include "lessons/grader/build_program.hpp"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "lessons/grader/confine/view.hpp"
#include "src/core/require.hpp"
#include "src/os/environment.hpp"

namespace lockstep::lessons {

namespace {

using Lines = std::vector<std::string_view>;

constexpr std::size_t kMostLinesBelow = 10;
constexpr std::size_t kLongestLine = 300;
constexpr std::size_t kLongestMessage = 1000;

Lines lines_of(std::string_view text) {
    Lines lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        lines.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

std::string cut(std::string_view text, std::size_t longest) {
    if (text.size() <= longest) return std::string(text);
    return std::string(text.substr(0, longest)) + " ...";
}

struct Place {
    std::string_view file;
    int line = 0;
};

/// Removes ":12" from the end and returns 12.
std::optional<int> take_number(std::string_view& text) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || colon + 1 == text.size()) return std::nullopt;
    int number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, number);
    if (error != std::errc() || rest != end) return std::nullopt;
    text.remove_suffix(text.size() - colon);
    return number;
}

/// Reads "file:line:column", "file:line" or "file".
Place parse_place(std::string_view text) {
    const std::optional<int> last = take_number(text);
    const std::optional<int> before = last ? take_number(text) : std::nullopt;
    return {text, before.value_or(last.value_or(0))};
}

/// File names as a student knows them: relative to the folder.
class Folder {
  public:
    explicit Folder(const std::filesystem::path& folder) : folder_(folder) {}

    /// Returns the name in the folder; empty if the file is not in the folder.
    std::string own(std::string_view file) const {
        if (file.empty() || file.front() == '<') return "";
        const std::filesystem::path name =
            (folder_ / file).lexically_normal().lexically_proximate(folder_);
        std::error_code error;
        if (name.is_absolute() || *name.begin() == "..") return "";
        return std::filesystem::is_regular_file(folder_ / name, error) ? name.string()
                                                                       : "";
    }

  private:
    std::filesystem::path folder_;
};

/// The texts before and after a word such as ": error: ".
struct Split {
    std::string_view before;
    std::string_view after;
};

std::optional<Split> split(std::string_view line, std::string_view word) {
    const std::size_t at = line.find(word);
    if (at == std::string_view::npos) return std::nullopt;
    return Split{line.substr(0, at), line.substr(at + word.size())};
}

/// Splits an error line of a compiler or an assembler: "ring.cpp:3:4: error: message". A
/// quoted line of code may contain ": error: " too, but such a line is indented or has a
/// bar.
std::optional<Split> error_in(std::string_view line) {
    if (line.empty() || line.front() == ' ') return std::nullopt;
    for (const std::string_view word :
         {": fatal error: ", ": internal compiler error: ", ": error: ", ": Error: "})
        if (const auto found = split(line, word)) return found;
    return std::nullopt;
}

bool starts_another(std::string_view line) {
    for (const std::string_view word : {": warning: ", ": note: ", ": In ", ": At "})
        if (!line.empty() && line.front() != ' ' && split(line, word)) return true;
    return error_in(line) || line.starts_with("In file included") ||
           line.starts_with("compilation terminated") || line.ends_with(" generated.") ||
           line.starts_with("cc1plus:");
}

std::string lines_below(const Lines& lines, std::size_t error) {
    std::string text;
    for (std::size_t i = error + 1; i < lines.size() && i <= error + kMostLinesBelow;
         ++i) {
        if (starts_another(lines[i])) break;
        text += cut(lines[i], kLongestLine) + "\n";
    }
    return text;
}

/// Reads the place from a line in which the compiler says how it got to an error: "from
/// ring.cpp:1:", "referenced by ring.cpp:5", "ring.cpp:7:12: required from here",
/// "ring.cpp:7:12: note: in instantiation of ... requested here".
std::optional<Place> named_place(std::string_view line) {
    for (const std::string_view word : {":   ", ": note: in instantiation"})
        if (const auto found = split(line, word)) return parse_place(found->before);
    for (const std::string_view word : {"from ", "referenced by "})
        if (const auto found = split(line, word)) {
            line = found->after;
            if (line.ends_with(':') || line.ends_with(',')) line.remove_suffix(1);
            return parse_place(line);
        }
    return std::nullopt;
}

/// Sets file and line to the student's line that led to the error. For a template, GCC
/// names that line before the error, and clang names it after the error. For other
/// errors, the list of inclusions names the student's line.
void find_own_place(const Lines& lines, std::size_t error, const Folder& folder,
                    BuildFailure& failure) {
    std::size_t first = error;
    while (first > 0 && !error_in(lines[first - 1]) &&
           lines[first - 1].find(": warning: ") == std::string_view::npos)
        --first;
    Lines chain;
    for (std::size_t i = first; i < error; ++i)
        if (lines[i].find("required from") != std::string_view::npos ||
            lines[i].find("expansion of") != std::string_view::npos)
            chain.push_back(lines[i]);
    for (std::size_t i = error + 1; i < lines.size() && !error_in(lines[i]); ++i)
        if (lines[i].find("requested here") != std::string_view::npos ||
            lines[i].find("referenced by ") != std::string_view::npos)
            chain.push_back(lines[i]);
    for (std::size_t i = error; i > first; --i)
        chain.push_back(lines[i - 1]);
    for (const std::string_view line : chain) {
        const auto place = named_place(line);
        failure.file = place ? folder.own(place->file) : "";
        failure.line = place ? place->line : 0;
        if (!failure.file.empty()) return;
    }
}

/// Reads a linker's error: "ring.cpp:5: undefined reference to `f()'" if the linker knows
/// the line; otherwise "ring.cpp:(.text+0x9): ...".
std::optional<BuildFailure> link_error(std::string_view line, const Folder& folder) {
    for (const std::string_view word :
         {"undefined reference to ", "multiple definition of "}) {
        const std::size_t at = line.find(word);
        if (at == std::string_view::npos) continue;
        std::string_view before = line.substr(0, at);
        if (const auto found = split(before, "ld: ")) before = found->after;
        before = before.substr(0, before.rfind(": "));
        before = before.substr(0, before.find(":(."));
        const Place place = parse_place(before);
        return BuildFailure{folder.own(place.file), place.line,
                            cut(line.substr(at), kLongestMessage), ""};
    }
    return std::nullopt;
}

/// Returns whether a driver's message only repeats that the linker failed. The linker's
/// own message says why.
bool passes_on(std::string_view message) {
    return message.starts_with("ld returned") ||
           message.starts_with("linker command failed");
}

BuildFailure compile_error(const Lines& lines, std::size_t at, const Split& found,
                           const Folder& folder) {
    if (passes_on(found.after) && at > 0)
        return {"", 0, cut(lines.front(), kLongestMessage), ""};
    const Place place = parse_place(found.before);
    BuildFailure failure{folder.own(place.file), place.line,
                         cut(found.after, kLongestMessage), lines_below(lines, at)};
    if (failure.file.empty()) find_own_place(lines, at, folder, failure);
    return failure;
}

}  // namespace

std::optional<BuildFailure> first_error(const std::string& output,
                                        const std::filesystem::path& folder) {
    const Lines lines = lines_of(output);
    const Folder own(folder);
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (const auto found = error_in(lines[i]))
            return compile_error(lines, i, *found, own);
        if (auto failure = link_error(lines[i], own)) return failure;
    }
    return std::nullopt;
}

std::vector<std::string> student_compiler() {
    if (const char* const asked = std::getenv("CXX")) {
        std::istringstream text(asked);
        std::vector<std::string> words;
        for (std::string word; text >> word;)
            words.push_back(word);
        if (!words.empty()) return words;
    }
    for (const char* name : {"g++", "c++", "clang++"})
        if (!os::find_on_path(name).empty()) return {name};
    throw MissingError("there is no C++ compiler on the PATH; install g++");
}

namespace {

using os::Clock;

constexpr std::int64_t kLargestFile = 64 << 20;
constexpr std::size_t kMostOutput = 1 << 20;

std::string object_of(const std::string& source) {
    return source + ".o";
}

/// Flags: line numbers in the linker's errors, only the first error, and output that does
/// not depend on the terminal. The caller's flags come later and override these.
std::vector<std::string> own_flags() {
    return {"-g1", "-Wfatal-errors", "-fdiagnostics-color=never",
            "-fno-diagnostics-show-option", "-fmessage-length=0"};
}

/// While this object lives, the folder belongs to the confined programs' user.
class HandedOver {
  public:
    explicit HandedOver(const BuildPlan& plan) : folder_(plan.folder), user_(plan.user) {
        hand_over(folder_, user_);
    }
    ~HandedOver() {
        try {
            take_back(folder_, user_);
        } catch (const std::exception&) {
            // If a file then cannot be read, starting the program fails.
        }
    }
    HandedOver(const HandedOver&) = delete;
    HandedOver& operator=(const HandedOver&) = delete;

  private:
    std::filesystem::path folder_;
    unsigned user_;
};

class Build {
  public:
    explicit Build(const BuildPlan& plan)
        : plan_(plan),
          deadline_(os::after(Clock::now(), plan.wall_seconds)),
          reads_(plan.reads) {
        for (const std::string& word : plan.compiler)
            for (const std::filesystem::path& path : toolchain_files(word))
                if (std::ranges::find(reads_, path) == reads_.end())
                    reads_.push_back(path);
    }

    std::optional<BuildFailure> compile_all() {
        const std::size_t count = plan_.sources.size();
        const auto at_once = static_cast<std::size_t>(std::max(plan_.at_once, 1));
        std::vector<std::unique_ptr<ConfinedProcess>> running(count);
        std::size_t started = 0;
        for (std::size_t i = 0; i < count; ++i) {
            for (; started < std::min(count, i + at_once); ++started)
                running[started] = run(compile_words(plan_.sources[started]));
            if (auto failure = result(std::move(running[i]),
                                      compile_words(plan_.sources[i]), plan_.sources[i]))
                return failure;
        }
        return std::nullopt;
    }

    std::optional<BuildFailure> link() {
        return result(run(link_words()), link_words(), "");
    }

  private:
    std::vector<std::string> compile_words(const std::string& source) const {
        std::vector<std::string> words = plan_.compiler;
        for (const auto& flags : {own_flags(), plan_.flags})
            words.insert(words.end(), flags.begin(), flags.end());
        words.insert(words.end(), {"-c", source, "-o", object_of(source)});
        return words;
    }

    std::vector<std::string> link_words() const {
        std::vector<std::string> words = plan_.compiler;
        for (const std::string& source : plan_.sources)
            words.push_back(object_of(source));
        words.insert(words.end(), plan_.link.begin(), plan_.link.end());
        // A source can contain another compiler's result (LTO), from which the linker
        // would start any number of compilers.
        words.insert(words.end(), {"-fno-lto", "-o", plan_.program});
        return words;
    }

    Confinement confinement() const {
        const double left =
            std::chrono::duration<double>(deadline_ - Clock::now()).count();
        // Many processes are allowed, because other programs may run as the same user.
        return {.user = plan_.user,
                .cpu_seconds = plan_.cpu_seconds,
                .wall_seconds = std::max(left, 0.0),
                .memory_bytes = plan_.memory_bytes,
                .file_bytes = kLargestFile,
                .processes = 256,
                .files = 256,
                .only_computes = false};
    }

    std::unique_ptr<ConfinedProcess> run(std::vector<std::string> words) const {
        return std::make_unique<ConfinedProcess>(
            ConfinedPlan{.words = std::move(words),
                         .folder = plan_.folder,
                         .confinement = confinement(),
                         .reads = reads_,
                         .variables = {"LC_ALL=C", "CCACHE_DISABLE=1"}});
    }

    /// Returns what is wrong in the source. If the compiler was killed or could not
    /// write, runs it once more, because the machine may have had no memory at that
    /// moment, or no room for files.
    std::optional<BuildFailure> result(std::unique_ptr<ConfinedProcess> process,
                                       const std::vector<std::string>& words,
                                       const std::string& source) const {
        if (was_killed(*process) || had_no_room(*process)) {
            process = run(words);
            if (was_killed(*process) && process->wait()->memory_was_short)
                throw MissingError(
                    "the compiler was killed, since this machine had no memory left");
            if (had_no_room(*process) && is_full())
                throw MissingError(
                    fmt::format("there is no room for the compiler's files in {}",
                                plan_.folder.parent_path().string()));
        }
        const Ending ending = *process->wait();
        if (ending.succeeded()) return std::nullopt;
        if (ending.cause == EndedBy::wall_limit)
            throw MissingError(
                fmt::format("this machine is too slow or too busy: the compiler had not "
                            "ended after {:g} s",
                            plan_.wall_seconds));
        const std::string output = process->output(kMostOutput);
        if (const std::string limit = limit_reached(ending, output); !limit.empty())
            return BuildFailure{source, 0, limit, ""};
        if (auto failure = first_error(output, plan_.folder)) {
            if (failure->file.empty()) failure->file = source;
            return failure;
        }
        return BuildFailure{source, 0,
                            "the compiler " + ending_sentence(ending, confinement()),
                            output.substr(0, 1000)};
    }

    /// Returns whether the compiler, or a program that it started, was killed.
    static bool was_killed(ConfinedProcess& process) {
        const Ending ending = *process.wait();
        const std::string output = process.output(kMostOutput);
        return (ending.cause == EndedBy::signal && ending.signal == SIGKILL) ||
               (ending.cause == EndedBy::itself && !ending.succeeded() &&
                (output.find("Killed signal terminated program") != std::string::npos ||
                 output.find("unable to execute command: Killed") != std::string::npos));
    }

    /// Returns whether the compiler, or a program that it started, says that it could not
    /// write a file. A source can let it say that, too.
    static bool had_no_room(ConfinedProcess& process) {
        const std::string output = process.output(kMostOutput);
        return !process.wait()->succeeded() &&
               output.find("No space left on device") != std::string::npos;
    }

    bool is_full() const {
        std::error_code error;
        const auto space = std::filesystem::space(plan_.folder, error);
        return !error && space.available < std::uintmax_t{kLargestFile};
    }

    /// Returns which limit stopped the compiler or a program that it started; empty if
    /// none did.
    std::string limit_reached(const Ending& ending, const std::string& output) const {
        const auto said = [&output](const char* text) {
            return output.find(text) != std::string::npos;
        };
        if (ending.cause == EndedBy::cpu_limit ||
            ending.cpu_seconds >= plan_.cpu_seconds || said("CPU time limit exceeded"))
            return fmt::format("the compiler was stopped after {:g} s of processor time",
                               plan_.cpu_seconds);
        if (said("out of memory") || said("memory exhausted") || said("std::bad_alloc"))
            return fmt::format("the compiler needed more than {} MiB of memory",
                               plan_.memory_bytes >> 20);
        if (said("File too large") || said("file size limit"))
            return fmt::format(
                "the compiler was stopped: its output is larger than {} MiB",
                kLargestFile >> 20);
        return "";
    }

    const BuildPlan& plan_;
    Clock::time_point deadline_;
    std::vector<std::filesystem::path> reads_;
};

}  // namespace

std::optional<BuildFailure> build_program(const BuildPlan& plan) {
    const HandedOver handed(plan);
    Build build(plan);
    if (auto failure = build.compile_all()) return failure;
    return build.link();
}

}  // namespace lockstep::lessons
