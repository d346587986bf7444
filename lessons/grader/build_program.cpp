#include "lessons/grader/build_program.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>

#include <fmt/format.h>

#include "lessons/grader/compiler_output.hpp"
#include "lessons/grader/confine/confined_process.hpp"
#include "src/core/require.hpp"
#include "src/os/environment.hpp"

namespace lockstep::lessons {

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

constexpr std::int64_t kLargestFile = 256 << 20;
constexpr std::size_t kMostOutput = 1 << 20;

std::string object_of(const std::string& source) {
    return source + ".o";
}

/// Lines for the linker's complaints; one mistake is enough; nothing that depends on the
/// terminal. Callers' flags come later, and win.
std::vector<std::string> own_flags() {
    return {"-g1", "-Wfatal-errors", "-fdiagnostics-color=never",
            "-fno-diagnostics-show-option", "-fmessage-length=0"};
}

/// The folder is the confined programs' own while one lives.
class HandedOver {
  public:
    explicit HandedOver(const std::filesystem::path& folder) : folder_(folder) {
        hand_over(folder_);
    }
    ~HandedOver() {
        try {
            take_back(folder_);
        } catch (const std::exception&) {
            // What cannot be read then shows itself when the program is started.
        }
    }
    HandedOver(const HandedOver&) = delete;
    HandedOver& operator=(const HandedOver&) = delete;

  private:
    std::filesystem::path folder_;
};

class Build {
  public:
    explicit Build(const BuildPlan& plan)
        : plan_(plan), deadline_(os::after(Clock::now(), plan.wall_seconds)) {}

    std::optional<BuildFailure> compile_all() {
        const std::size_t count = plan_.sources.size();
        const auto at_once = static_cast<std::size_t>(std::max(plan_.at_once, 1));
        std::vector<std::unique_ptr<ConfinedProcess>> running(count);
        std::size_t started = 0;
        for (std::size_t i = 0; i < count; ++i) {
            for (; started < std::min(count, i + at_once); ++started)
                running[started] = run(compile_words(plan_.sources[started]));
            if (auto failure = result(*running[i], plan_.sources[i])) return failure;
            running[i].reset();
        }
        return std::nullopt;
    }

    std::optional<BuildFailure> link() { return result(*run(link_words()), ""); }

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
        words.insert(words.end(), {"-o", plan_.program});
        return words;
    }

    Confinement confinement() const {
        const double left =
            std::chrono::duration<double>(deadline_ - Clock::now()).count();
        // The slack in processes: others may have the same user.
        return {.cpu_seconds = plan_.wall_seconds,
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
                         .variables = {"LC_ALL=C", "CCACHE_DISABLE=1"}});
    }

    std::optional<BuildFailure> result(ConfinedProcess& process,
                                       const std::string& source) const {
        const Ending ending = *process.wait();
        if (ending.succeeded()) return std::nullopt;
        const std::string output = process.output(kMostOutput);
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

    /// Why the compiler, or one that it started, could not go on; empty where it is not
    /// for a limit.
    std::string limit_reached(const Ending& ending, const std::string& output) const {
        const auto said = [&output](const char* text) {
            return output.find(text) != std::string::npos;
        };
        if (ending.by == EndedBy::wall_limit || ending.by == EndedBy::cpu_limit ||
            ending.cpu_seconds >= plan_.wall_seconds || said("CPU time limit exceeded"))
            return fmt::format("the compiler was stopped: it was not done after {:g} s",
                               plan_.wall_seconds);
        if (said("out of memory") || said("memory exhausted") || said("std::bad_alloc"))
            return fmt::format("the compiler needed more than {} MiB of memory",
                               plan_.memory_bytes >> 20);
        if (said("File too large") || said("file size limit"))
            return fmt::format(
                "the compiler was stopped: what it made is larger than {} MiB",
                kLargestFile >> 20);
        return "";
    }

    const BuildPlan& plan_;
    Clock::time_point deadline_;
};

}  // namespace

std::optional<BuildFailure> build_program(const BuildPlan& plan) {
    const HandedOver handed(plan.folder);
    Build build(plan);
    if (auto failure = build.compile_all()) return failure;
    return build.link();
}

}  // namespace lockstep::lessons
