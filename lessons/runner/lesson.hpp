#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lessons/runner/page.hpp"
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
    std::optional<int> step;  ///< only this step is shown (from 1)
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
};

/// Makes virtual devices that compute shapes only, with memory without limit, in every
/// process and whatever the backend: for sizing what nobody here could run.
std::unique_ptr<Cluster> make_shapes_only_cluster(int ranks);
/// They have the times and the memory of `spec` instead of the classroom's.
std::unique_ptr<Cluster> make_shapes_only_cluster(int ranks, const ClusterSpec& spec,
                                                  bool trace = false);

/// One step: its title, and what it does and shows. Later steps may use what earlier ones
/// left in the lesson; if a step is asked for alone, those before it run unseen.
struct Step {
    std::string title;
    std::function<void(Page&)> run;
};

/// A lesson: steps over a state of its own. Whatever it records goes into `record`, whose
/// options are set already. Both outlive the lesson.
class Lesson {
  public:
    Lesson(const LessonOptions& options, Record& record)
        : options_(options), record_(record) {}
    virtual ~Lesson() = default;
    virtual std::vector<Step> steps() = 0;

  protected:
    const LessonOptions& options() const { return options_; }
    Record& record() { return record_; }
    bool has_numbers() const { return options_.has_numbers(); }

    /// Makes a step of a member of the lesson's class.
    template <typename Class>
    Step step(const std::string& title, void (Class::*run)(Page&)) {
        return {title, [lesson = static_cast<Class*>(this), run](Page& page) {
                    (lesson->*run)(page);
                }};
    }
    /// Leaves in the record the value that a setting has in this run.
    void note(const std::string& key, std::int64_t value) {
        record_.options.settings[key] = std::to_string(value);
    }

    /// Shows a check of values; in a run of shapes only there are none, and the page says
    /// so.
    void check_values(Page& page, const Check& check) const;
    /// Checks a difference that may be at most `limit`.
    void check_values(Page& page, const std::string& name, double difference,
                      double limit) const {
        check_values(page, Check::at_most(name, difference, limit));
    }

  private:
    const LessonOptions& options_;
    Record& record_;
};

/// Makes a lesson of this class, for LessonEntry::make.
template <typename Class>
std::unique_ptr<Lesson> make_lesson(const LessonOptions& options, Record& record) {
    return std::make_unique<Class>(options, record);
}

/// Returns the smallest multiple of `part` that is at least `least`.
constexpr std::int64_t least_multiple(std::int64_t part, std::int64_t least) {
    return (least + part - 1) / part * part;
}

/// How the catalogue knows a lesson.
struct LessonEntry {
    std::string slug;
    std::string title;
    std::string question;  ///< what it answers, in one sentence
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
