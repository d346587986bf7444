#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/runner/command_line.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/os/child.hpp"
#include "src/os/environment.hpp"
#include "src/report/compare.hpp"
#include "src/text/json.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

Take bound_into(std::optional<double>& bound) {
    return [&bound](const std::string& option, const std::string& value) {
        bound = parse_typed_number(value);
        require(bound && *bound >= 0, "{} {}: a number from 0 on is expected", option,
                printable(value));
    };
}

/// Parses "sim,gpu".
Take backends_into(std::array<std::string, 2>& backends) {
    return [&backends](const std::string& option, const std::string& value) {
        const std::size_t comma = std::min(value.find(','), value.size());
        backends = {value.substr(0, comma),
                    value.substr(std::min(comma + 1, value.size()))};
        const bool known = std::ranges::all_of(backends, [](const std::string& name) {
            return name == "sim" || name == "cuda" || name == "nccl" || name == "gpu";
        });
        require(known,
                "{} {}: two of sim, cuda, nccl and gpu are expected, as in sim,gpu",
                option, printable(value));
    };
}

const std::string kBoundMeaning =
    "largest allowed relative difference; 0 requires the same bits";

void declare_records(Command& command) {
    auto& request = command.asks_for<CompareRequest>();
    command.positional("DIR_A", "the record of a run", path_into(request.a));
    command.positional("DIR_B", "that of another", path_into(request.b));
    command.option("--backends", "A,B", "runs a lesson instead, see below",
                   [](const std::string&, const std::string&) {});
    command.option("--bound", "X", kBoundMeaning, bound_into(request.bound));
    command.flag("--json", kJsonMeaning, request.json);
}

void declare_backends(Command& command, const CommandLine& line) {
    auto& request = command.asks_for<BackendsRequest>();
    command.positional("SLUG", "which lesson", text_into(request.slug));
    command.suggest(lesson_slugs());
    command.option("--backends", "A,B", "two of sim, cuda, nccl and gpu: sim,gpu",
                   backends_into(request.backends));
    command.suggest({"sim,cuda", "sim,gpu", "sim,nccl", "sim,sim"});
    declare_lesson_options(command, request.lesson_options, line);
    command.option("--out", "DIR", "keep the two records in this folder",
                   path_into(request.out));
    command.option("--bound", "X", kBoundMeaning, bound_into(request.bound));
    command.flag("--json", kJsonMeaning, request.json);
    command.finally([&command, &request] {
        const auto& settings = request.lesson_options.settings;
        const auto numerics = settings.find("numerics");
        require(numerics == settings.end() || numerics->second != "off",
                "--set numerics=off: then there are no numbers to compare");
        for (const std::string& word : command.given())
            if (!word.starts_with("--backends=") && !word.starts_with("--out=") &&
                !word.starts_with("--bound=") && !word.starts_with("--json="))
                request.lesson_words.push_back(word);
        std::ranges::sort(request.lesson_words);
    });
}

}  // namespace

void declare_compare(CommandLine& line) {
    const std::string purpose =
        "Runs a lesson on two backends and compares the outputs. Exit status 1 if they "
        "differ by more than the bound or a check of the lesson failed.";
    const bool help = line.has("--help") || line.has("-h");
    if (line.has("--backends") && !help) {
        declare_backends(line.add("compare", purpose), line);
        return;
    }
    Command& command =
        line.add("compare",
                 "Compares the outputs of two records or, with --backends A,B, of a "
                 "lesson. Exit status 1 if they differ by more than the bound.");
    declare_records(command);
    CommandLine other = command_line({});
    Command& backends = other.add("compare", purpose);
    declare_backends(backends, line);
    command.footer("\n" + backends.help());
}

int run(const CompareRequest& request) {
    const Comparison comparison = compare_records(request.a, request.b, request.bound);
    std::string text = request.json ? comparison.json() : comparison.text();
    if (!text.ends_with('\n')) text += '\n';
    print(text);
    return comparison.passed() ? kSuccess : kFailed;
}

namespace {

namespace fs = std::filesystem;

/// The folders of the two records. Temporary folders are deleted with this object.
class RecordFolders {
  public:
    explicit RecordFolders(const std::optional<fs::path>& wanted) {
        if (wanted) {
            path_ = *wanted;
            return;
        }
        path_ = os::make_temporary_folder();
        temporary_ = true;
    }
    ~RecordFolders() { remove(); }
    RecordFolders(const RecordFolders&) = delete;
    RecordFolders& operator=(const RecordFolders&) = delete;

    fs::path path_of(int run, const std::array<std::string, 2>& backends) const {
        const std::string& name = backends[run];
        return path_ /
               (backends[0] == backends[1] ? fmt::format("{}-{}", name, run + 1) : name);
    }
    void remove() noexcept {
        std::error_code ignored;
        if (temporary_) fs::remove_all(path_, ignored);
        temporary_ = false;
    }

  private:
    fs::path path_;
    bool temporary_ = false;
};

/// While this object lives, shows "running … on sim" on standard error if that is a
/// terminal.
class Notice {
  public:
    explicit Notice(const std::string& text) : shown_(is_clever_terminal(STDERR_FILENO)) {
        if (shown_) write_all(STDERR_FILENO, text, "standard error");
    }
    ~Notice() {
        if (shown_ && ::write(STDERR_FILENO, "\r\033[K", 4) < 0) return;
    }
    Notice(const Notice&) = delete;
    Notice& operator=(const Notice&) = delete;

  private:
    bool shown_;
};

/// One of the two runs.
struct Run {
    std::string backend;
    fs::path folder;
    std::size_t checks = 0;
    std::vector<std::string> failed;  ///< names of the checks that failed
};

/// Returns the number of ranks for both runs: the number asked for, or the smaller of the
/// two backends' default numbers.
int settled_ranks(const BackendsRequest& request, const LessonOptions& asked,
                  int default_ranks) {
    int ranks = sim::ClusterOptions::kMaxRanks;
    for (const std::string& backend : request.backends) {
        LessonOptions options = asked;
        options.backend = backend;
        options = resolved(options, default_ranks, std::nullopt);
        ranks = std::min(ranks, options.ranks.value_or(default_ranks));
    }
    return ranks;
}

void refuse_placement(const gpu::Placement& placement) {
    // Only rank 0 fails. If another rank failed, too, a launcher might kill rank 0 before
    // rank 0 prints its message.
    require(placement.rank != 0,
            "compare --backends starts the processes of both runs itself, but {} started "
            "{} of compare: run it without {}",
            placement.launcher, placement.size, placement.launcher);
}

os::Child run_lesson_on(const BackendsRequest& request, const std::string& backend,
                        int ranks, const fs::path& folder) {
    std::vector<std::string> words{"/proc/self/exe", "lesson", request.slug};
    words.insert(words.end(), request.lesson_words.begin(), request.lesson_words.end());
    if (!request.lesson_options.ranks) words.push_back(fmt::format("--ranks={}", ranks));
    for (const std::string& word :
         {"--backend=" + backend, "--out=" + folder.string(), std::string("--json")})
        words.push_back(word);
    const Notice notice(fmt::format("running {} on {}", request.slug, backend));
    return os::run_child(words);
}

/// Parses the JSON document. Throws UsageError if text of a library precedes the JSON.
Json parsed(const std::string& document) {
    require(document.starts_with('{'),
            "the lesson's output begins with \"{}\" instead of its JSON document. If "
            "NCCL_DEBUG is set, NCCL writes to standard output; set "
            "NCCL_DEBUG_FILE=nccl.%p.log to avoid that",
            document.substr(0, std::min<std::size_t>(document.find('\n'), 60)));
    return Json::parse(document);
}

/// Reads the backend and the checks from the lesson's JSON document.
Run read_run(const std::string& document, const fs::path& folder) {
    const Json json = parsed(document);
    Run run{json.at("options").at("backend").get<std::string>(), folder, 0, {}};
    for (const Json& check : json.at("metrics").at("checks").elements()) {
        ++run.checks;
        if (!check.at("passed").get<bool>())
            run.failed.push_back(check.at("name").get<std::string>());
    }
    return run;
}

/// Returns whether a mistake ended the run; then its record is no result.
bool was_stopped(const std::string& document) {
    return parsed(document).contains("diagnosis");
}

/// Returns this program's exit status for a run that left no record. Explains the missing
/// record on standard error, with the lesson's error output if there is any.
int explain_lost_run(const os::Child& child, const std::string& backend) {
    std::string text = child.errors;
    const bool signalled = child.status > 128;
    if (signalled || text.empty())
        text += fmt::format("lockstep: the lesson on {} ended with {} {} and no record\n",
                            backend, signalled ? "signal" : "status",
                            signalled ? child.status - 128 : child.status);
    write_all(STDERR_FILENO, text, "standard error");
    const bool known = child.status == kUsage || child.status == kLacking;
    return known ? child.status : kFailed;
}

std::string checks_text(const Run& run) {
    if (run.failed.empty())
        return run.checks == 1 ? "its check passed"
                               : fmt::format("all {} checks passed", run.checks);
    return fmt::format("{} of {} checks FAILED: {}", run.failed.size(), run.checks,
                       fmt::join(run.failed, ", "));
}

std::string text_of(const BackendsRequest& request, const std::array<Run, 2>& runs,
                    int ranks, const Comparison& comparison) {
    std::string text;
    for (std::size_t i = 0; i < 2; ++i)
        text += fmt::format("{} is {} on {}{}: {}.\n", i == 0 ? "A" : "B", request.slug,
                            request.backends[i],
                            runs[i].backend == request.backends[i]
                                ? ""
                                : fmt::format(" ({})", runs[i].backend),
                            checks_text(runs[i]));
    return text +
           fmt::format("Both ran on {} rank{}.\n\n", ranks, ranks == 1 ? "" : "s") +
           comparison.text();
}

std::string json_of(const BackendsRequest& request, const std::array<Run, 2>& runs,
                    int ranks, const Comparison& comparison, bool passed) {
    Json list = Json::array();
    for (const Run& run : runs) {
        Json json{
            {"backend", run.backend}, {"checks", run.checks}, {"failed", run.failed}};
        if (request.out) json["record"] = run.folder.string();
        list.push_back(json);
    }
    return Json{{"lesson", request.slug},
                {"ranks", ranks},
                {"passed", passed},
                {"runs", list},
                {"comparison", Json::parse(comparison.json())}}
               .dump(2) +
           "\n";
}

}  // namespace

int run(const BackendsRequest& request) {
    const LessonEntry& lesson = find_lesson(request.slug);
    if (const auto placement = gpu::find_placement(gpu::process_environment())) {
        refuse_placement(*placement);
        return kSuccess;
    }
    const LessonOptions asked = understood(request.lesson_options, lesson);
    require_regular_files(asked, "both runs read the file, so it");
    const int ranks = settled_ranks(request, asked, lesson.default_ranks);
    RecordFolders folders(request.out);
    for (int i = 0; i < 2 && request.out; ++i)
        naming("--out", folders.path_of(i, request.backends), require_record_folder);
    std::array<Run, 2> runs;
    for (int i = 0; i < 2; ++i) {
        const std::string& backend = request.backends[i];
        const fs::path folder = folders.path_of(i, request.backends);
        const os::Child child = run_lesson_on(request, backend, ranks, folder);
        if (child.interrupted_by != 0) {
            folders.remove();
            std::signal(child.interrupted_by, SIG_DFL);
            std::raise(child.interrupted_by);
        }
        if (child.status > kFailed || child.output.empty())
            return explain_lost_run(child, backend);
        if (was_stopped(child.output)) return explain_lost_run(child, backend);
        write_all(STDERR_FILENO, child.errors, "standard error");
        runs[i] = read_run(child.output, folder);
    }
    const Comparison comparison =
        compare_records(runs[0].folder, runs[1].folder, request.bound);
    const bool passed =
        comparison.passed() && runs[0].failed.empty() && runs[1].failed.empty();
    print(request.json ? json_of(request, runs, ranks, comparison, passed)
                       : text_of(request, runs, ranks, comparison));
    return passed ? kSuccess : kFailed;
}

}  // namespace lockstep::lessons
