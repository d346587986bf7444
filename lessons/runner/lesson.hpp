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

/// Options, settings and backends, which users' own programs need, too.
using namespace programs;

/// The options of a lesson on the command line.
struct LessonOptions : Options {
    std::optional<int> step;           ///< shows only this step, counted from 1
    std::optional<int> from;           ///< first step shown; default: the reader's place
    std::optional<Language> language;  ///< by default the locale's
    Solutions solutions = Solutions::hidden;
    std::optional<std::filesystem::path> text;
    std::optional<std::filesystem::path> data;
    bool json = false;

    /// The end of a message that refuses a run on one rank. Says why there is only one
    /// rank, unless the user asked for it.
    std::string gpus_hint() const {
        return backend == "nccl" && ranks == 1
                   ? "; with --backend nccl the default is the number of GPUs of this "
                     "machine (see --ranks); --backend cuda has virtual devices"
                   : "";
    }

    /// Returns the options for a run that makes a mistake on purpose; --check full would
    /// stop such a run.
    LessonOptions without_full_check() const {
        LessonOptions other = *this;
        other.check = sim::CheckLevel::cheap;
        return other;
    }
    /// Returns the options for a run on virtual devices with all checks.
    LessonOptions with_full_check() const {
        LessonOptions other = *this;
        other.check = sim::CheckLevel::full;
        other.backend = "sim";
        other.process = nullptr;
        return other;
    }
};

/// Returns the diagnosis of the mistake that ends a run, at the width of a page's
/// quotations; empty if there is none.
std::string diagnosis_of(const std::function<void()>& run);

/// Makes virtual devices that compute only shapes and have unlimited memory. Every
/// process makes its own devices, whatever the backend. They are for estimating runs that
/// are too large for this machine.
std::unique_ptr<Cluster> make_shapes_only_cluster(int ranks);
/// Makes devices that compute only shapes, with the times and the memory of `spec`.
std::unique_ptr<Cluster> make_shapes_only_cluster(int ranks, const ClusterSpec& spec,
                                                  bool trace = false);

/// One step: its title, and a function that runs it and returns what it shows. A step may
/// use what earlier steps have stored in the lesson. If only one step is asked for, the
/// steps before it run without output. The end of a lesson is a step without a title.
struct Step {
    std::string title;
    std::function<Document()> run;
};

/// The computation for one section of a lesson's page. It gives values to the names on
/// the page, and contains no prose.
struct Experiment {
    std::string name;  ///< the section's name, in "## Title {#name}"
    std::function<void(Findings&)> run;
};

/// A lesson's experiments and what they share. The lesson records everything in `record`,
/// which already has the run's options. `options` and `record` must outlive the lesson.
class Lesson {
  public:
    Lesson(const LessonOptions& options, Record& record)
        : options_(options), record_(record) {}
    virtual ~Lesson() = default;

    /// Their order does not matter, because the page decides the order of the steps.
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
    /// Makes virtual devices in this process, for runs that do not depend on the backend.
    std::unique_ptr<Cluster> virtual_devices(int ranks, bool trace = false) const;

    // Each of these functions adds its second argument to the record under `name`.
    void record_input(const std::string& name, const HostTensor& tensor) {
        record_.inputs.insert_or_assign(name, tensor);
    }
    void record_output(const std::string& name, const HostTensor& tensor) {
        record_.outputs.insert_or_assign(name, tensor);
    }
    void record_run(const std::string& name, const RunReport& report) {
        record_.runs.emplace_back(name, report);
    }
    /// Notes in the record the value that a setting has in this run.
    void note(const std::string& key, std::int64_t value) {
        record_.options.settings[key] = std::to_string(value);
    }

    /// Check that `difference` is at most `limit`, and that `figure` equals `expected`.
    /// If only shapes are computed, they note that nothing was compared.
    void values_at_most(Findings& found, const std::string& name, double difference,
                        double limit, SourceLine at = SourceLine::here()) const;
    void values_equal(Findings& found, const std::string& name, std::int64_t figure,
                      std::int64_t expected, SourceLine at = SourceLine::here()) const;
    /// Compares the virtual clock's time with a formula's seconds, if there is a virtual
    /// clock.
    void makespan_equals(Findings& found, const std::string& name,
                         const RunReport& report, double seconds,
                         SourceLine at = SourceLine::here()) const;

  private:
    const LessonOptions& options_;
    Record& record_;
};

/// An experiment made of a function, which may also take the data that the lesson's
/// experiments share.
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

/// Returns the steps, from 0, that are shown of a curve with this many steps.
std::vector<std::size_t> shown_steps(std::size_t steps);

/// Returns the smallest multiple of `part` that is at least `least`.
constexpr std::int64_t least_multiple(std::int64_t part, std::int64_t least) {
    return (least + part - 1) / part * part;
}

/// A lesson in the catalogue.
struct LessonEntry {
    std::string slug;
    std::string folder;  ///< the folder of its page, lesson.md
    std::string page;    ///< the page itself, if it is not a file of the program
    int default_ranks = 4;
    int least_ranks = 1;
    int most_ranks = sim::ClusterOptions::kMaxRanks;
    std::vector<Setting> settings;  ///< in addition to the settings of every lesson
    bool takes_text = false;
    bool takes_data = false;
    /// Reads --text, --data and the settings, so that errors in them are reported before
    /// the first step; steps read no options. Computes nothing yet.
    std::function<std::unique_ptr<Lesson>(const LessonOptions&, Record&)> make;
};

/// Returns the lesson's page in this language, or in English if there is no translation.
LessonPage page_of(const LessonEntry& lesson, Language language = Language::english);

/// The steps of a lesson: its page, with the results of its experiments.
class LessonSteps {
  public:
    /// `lesson` and `record` must outlive this. Throws UsageError unless each step of the
    /// page has its experiment in the lesson, and each experiment its step.
    LessonSteps(const LessonEntry& entry, Lesson& lesson, Language language,
                Record& record, Solutions solutions = Solutions::hidden);
    LessonSteps(const LessonSteps&) = delete;
    LessonSteps& operator=(const LessonSteps&) = delete;

    std::vector<Step>& steps() { return steps_; }
    const Findings& found() const { return found_; }
    /// Returns the page's text after its last step.
    Document end() const;

  private:
    Document show(const PageSection& section) const;
    /// Notes in the record, for each run, the title that the page gives this run.
    void name_runs(Record& record) const;

    Language language_;
    Solutions solutions_;
    LessonPage original_;  ///< the record's labels are from this page
    LessonPage shown_;
    Findings found_;
    std::vector<Step> steps_;
};

/// All lessons, in the order of the course.
const std::vector<LessonEntry>& catalogue();

/// Returns the names of all lessons.
std::vector<std::string> lesson_slugs();

/// Returns the lesson with this name; throws UsageError with all names if there is none.
const LessonEntry& find_lesson(const std::string& slug);

/// Returns the options for this machine: see programs::resolved. Also throws UsageError
/// if with nccl a file is a pipe, which only one of the processes could read.
LessonOptions resolved(LessonOptions options, int default_ranks,
                       const std::optional<gpu::Placement>& placement);

/// Throws UsageError ("--text FILE: <reason> must be a regular file") if --text or --data
/// is a pipe or another stream. Streams can be read only once.
void require_regular_files(const LessonOptions& options, const std::string& reason);

/// Throws UsageError if the lesson does not run on this number of ranks.
void require_ranks(const LessonEntry& lesson, const LessonOptions& options);

/// Returns the options with the values of all settings of this lesson. Throws UsageError
/// for a setting or a value that is not declared, and for --text or --data if the lesson
/// takes none.
LessonOptions understood(LessonOptions options, const LessonEntry& lesson);

}  // namespace lockstep::lessons
