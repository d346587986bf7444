#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lessons/page/lesson_page.hpp"
#include "lessons/runner/terminal.hpp"
#include "program/backend.hpp"
#include "program/settings.hpp"
#include "sim/cluster.hpp"
#include "src/comm/rank.hpp"
#include "src/cost/cluster_spec.hpp"
#include "src/report/record.hpp"

namespace lockstep::lessons {

/// Programs of one's own share the rest with lessons: it is in program/.
using namespace programs;

/// The options that a lesson was asked for with on the command line.
struct LessonOptions : Options {
    std::optional<int> step;           ///< only this step is shown (from 1)
    std::optional<int> from;           ///< the step to begin at; else where one left
    std::optional<Language> language;  ///< else the locale's
    Solutions solutions = Solutions::hidden;
    std::optional<std::filesystem::path> text;
    std::optional<std::filesystem::path> data;
    bool json = false;

    /// For a sentence that refuses one rank: says where it comes from, unless it was
    /// asked for.
    std::string gpus_hint() const {
        return backend == "nccl" && ranks == 1
                   ? "; with --backend nccl there are as many as this machine has GPUs, "
                     "unless --ranks says otherwise; --backend cuda has virtual ones"
                   : "";
    }

    /// Returns the options for a run that makes a mistake on purpose, which --check full
    /// would stop.
    LessonOptions without_full_check() const {
        LessonOptions other = *this;
        other.check = sim::CheckLevel::cheap;
        return other;
    }
    /// Returns the options for a run on virtual devices that looks for every mistake.
    LessonOptions with_full_check() const {
        LessonOptions other = *this;
        other.check = sim::CheckLevel::full;
        other.backend = "sim";
        other.process = nullptr;
        return other;
    }
};

/// Returns what is said of the mistake that ends a run, as wide as a page quotes it;
/// nothing if none does.
std::string diagnosis_of(const std::function<void()>& run);

/// Makes virtual devices that compute shapes only, with memory without limit, in every
/// process and whatever the backend: for sizing what nobody here could run.
std::unique_ptr<Cluster> make_shapes_only_cluster(int ranks);
/// They have the times and the memory of `spec` instead of the classroom's.
std::unique_ptr<Cluster> make_shapes_only_cluster(int ranks, const ClusterSpec& spec,
                                                  bool trace = false);

/// One step: its title, and what runs it and gives what it shows. Later steps may use
/// what earlier ones left in the lesson; if a step is asked for alone, those before it
/// run unseen. What stands at a lesson's end has no title.
struct Step {
    std::string title;
    std::function<Document()> run;
};

/// What a step of a lesson's page computes: it gives values to the names on the page, and
/// has no prose in it.
struct Experiment {
    std::string name;  ///< of the section, "## Title {#name}"
    std::function<void(Findings&)> run;
};

/// What a lesson's experiments share, and the experiments. Whatever it records goes into
/// `record`, whose options are set already. Both outlive the lesson.
class Lesson {
  public:
    Lesson(const LessonOptions& options, Record& record)
        : options_(options), record_(record) {}
    virtual ~Lesson() = default;

    /// In any order: the page has theirs.
    std::vector<Experiment> experiments;

    const LessonOptions& options() const { return options_; }
    Record& record() { return record_; }
    DType dtype() const { return options_.dtype; }
    bool has_numbers() const { return options_.has_numbers(); }
    bool has_virtual_time() const { return options_.has_virtual_time(); }

    /// Makes devices as the options say.
    std::unique_ptr<Cluster> devices(int ranks, bool trace = false) const {
        return make_cluster(options_, ranks, trace);
    }
    /// Makes virtual ones of this process, for what does not depend on the backend.
    std::unique_ptr<Cluster> virtual_devices(int ranks, bool trace = false) const;

    // Each leaves something in the record under the name.
    void record_input(const std::string& name, const HostTensor& tensor) {
        record_.inputs.insert_or_assign(name, tensor);
    }
    void record_output(const std::string& name, const HostTensor& tensor) {
        record_.outputs.insert_or_assign(name, tensor);
    }
    void record_run(const std::string& name, const RunReport& report) {
        record_.runs.emplace_back(name, report);
    }
    /// Leaves in the record the value that a setting has in this run.
    void note(const std::string& key, std::int64_t value) {
        record_.options.settings[key] = std::to_string(value);
    }

    /// Checks a difference of values, which is at most `limit`, or a number of them; in a
    /// run of shapes only there are none.
    void values_at_most(Findings& found, const std::string& name, double difference,
                        double limit, SourceLine at = SourceLine::here()) const;
    void values_equal(Findings& found, const std::string& name, std::int64_t figure,
                      std::int64_t expected, SourceLine at = SourceLine::here()) const;
    /// Holds the virtual clock's time against a formula's seconds, if there is one.
    void makespan_equals(Findings& found, const std::string& name,
                         const RunReport& report, double seconds,
                         SourceLine at = SourceLine::here()) const;

  private:
    const LessonOptions& options_;
    Record& record_;
};

/// An experiment that is a function. It takes what the lesson's experiments share, if it
/// needs that.
template <typename Shared>
struct ExperimentOf {
    ExperimentOf(std::string called, void (*function)(Shared&, Findings&))
        : name(std::move(called)), run(function) {}
    ExperimentOf(std::string called, void (*function)(Findings&))
        : name(std::move(called)),
          run([function](Shared&, Findings& found) { function(found); }) {}

    std::string name;
    std::function<void(Shared&, Findings&)> run;
};

/// Makes a lesson of these experiments, for LessonEntry::make.
template <typename Shared>
auto lesson_of(std::vector<ExperimentOf<Shared>> experiments) {
    return [experiments = std::move(experiments)](const LessonOptions& options,
                                                  Record& record) {
        auto lesson = std::make_unique<Shared>(options, record);
        for (const auto& [name, run] : experiments)
            lesson->experiments.push_back(
                {name, [&shared = *lesson, run = run](Findings& found) {
                     run(shared, found);
                 }});
        return std::unique_ptr<Lesson>(std::move(lesson));
    };
}

/// Returns which of so many steps, from 0, a curve is shown at.
std::vector<std::size_t> shown_steps(std::size_t steps);

/// Returns the smallest multiple of `part` that is at least `least`.
constexpr std::int64_t least_multiple(std::int64_t part, std::int64_t least) {
    return (least + part - 1) / part * part;
}

/// How the catalogue knows a lesson.
struct LessonEntry {
    std::string slug;
    std::string folder;  ///< of its page, lesson.md
    std::string page;    ///< the page itself, if it is not a file of the program
    int default_ranks = 4;
    int least_ranks = 1;
    int most_ranks = sim::ClusterOptions::kMaxRanks;
    std::vector<Setting> settings;  ///< beside those that every lesson understands
    bool takes_text = false;
    bool takes_data = false;
    /// Reads --text, --data and settings, so that what is wrong with them is said before
    /// the first step is shown; steps read no options. It computes nothing yet.
    std::function<std::unique_ptr<Lesson>(const LessonOptions&, Record&)> make;
};

/// Returns the lesson's page: its original, or what there is in a language.
LessonPage page_of(const LessonEntry& lesson, Language language = Language::english);

/// The steps of a lesson that was made: its page, and what its experiments find.
class LessonSteps {
  public:
    /// `lesson` and `record` outlive it. Throws UsageError for a page that has not the
    /// lesson's steps.
    LessonSteps(const LessonEntry& entry, Lesson& lesson, Language language,
                Record& record, Solutions solutions = Solutions::hidden);
    LessonSteps(const LessonSteps&) = delete;
    LessonSteps& operator=(const LessonSteps&) = delete;

    std::vector<Step>& steps() { return steps_; }
    const Findings& found() const { return found_; }
    /// Returns what the page has behind its steps.
    Document end() const;

  private:
    Document show(const PageSection& section) const;
    /// Gives the runs of the record the titles that the page has for them.
    void name_runs(Record& record) const;

    Language language_;
    Solutions solutions_;
    LessonPage original_;  ///< its labels are the record's
    LessonPage shown_;
    Findings found_;
    std::vector<Step> steps_;
};

/// All lessons, in the order of the course.
const std::vector<LessonEntry>& catalogue();

/// Returns their names.
std::vector<std::string> lesson_slugs();

/// Returns the lesson with this name; UsageError names those there are.
const LessonEntry& find_lesson(const std::string& slug);

/// Returns the options as this machine has them: see programs::resolved. Throws
/// UsageError also for a file that the processes of nccl could not all read.
LessonOptions resolved(LessonOptions options, int default_ranks,
                       const std::optional<gpu::Placement>& placement);

/// Throws UsageError, "--text FILE: <reason> must be a regular file", if --text or
/// --data is a pipe or another stream, which can be read once only.
void require_regular_files(const LessonOptions& options, const std::string& reason);

/// Throws UsageError for a number of ranks that is not the lesson's.
void require_ranks(const LessonEntry& lesson, const LessonOptions& options);

/// Returns the options with the values of their settings, as every lesson and this one
/// declare them. Throws UsageError for a setting or a value that is not declared, and for
/// --text or --data if the lesson takes none.
LessonOptions understood(LessonOptions options, const LessonEntry& lesson);

}  // namespace lockstep::lessons
