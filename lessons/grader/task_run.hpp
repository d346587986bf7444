#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lessons/grader/report/grade_report.hpp"
#include "sim/cluster.hpp"
#include "src/course/task.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::lessons {

/// A tensor that a task is given, and its category in the memory ledger.
struct TaskTensor {
    HostTensor values;
    MemoryCategory category = MemoryCategory::activations;

    bool operator==(const TaskTensor&) const = default;
};

/// A task on one rank, with its inputs there.
struct RankTask {
    std::string task;
    std::map<std::string, TaskTensor> tensors;
    std::map<std::string, std::int64_t> numbers;
    /// True if the task may read its device's tensors on the host: download().
    bool may_download = false;

    bool operator==(const RankTask&) const = default;
};

/// The tensors, values and texts that the task left, on the host.
struct RankResult {
    std::map<std::string, HostTensor> tensors;
    std::map<std::string, HostTensor> values;
    std::map<std::string, std::string> texts;
};

/// Uploads a task's tensors to a rank's device, each with its name.
std::map<std::string, Tensor> upload_given(Device& device, const RankTask& task);
/// Downloads the tensors that a task leaves; skips null ones.
std::map<std::string, HostTensor> read_left(Device& device,
                                            const std::map<std::string, Tensor>& tensors);

/// The grading itself is wrong, whatever the student wrote; for example, its reference
/// does not reach its end. Then there is no grade.
class GradingError : public std::logic_error {
  public:
    using std::logic_error::logic_error;
};

/// Why a task did not finish on a rank, if no device or communicator reports the cause.
class TaskEnded : public std::runtime_error {
  public:
    enum class Cause : std::uint8_t {
        not_written,  ///< it threw NotWritten
        threw,        ///< something else
        process,      ///< the rank's process ended, or was ended
        late,         ///< time ran out
        line          ///< its process broke the protocol
    };

    TaskEnded(Cause cause, int rank, const std::string& text)
        : std::runtime_error(text), cause_(cause), rank_(rank) {}

    Cause cause() const { return cause_; }
    int rank() const { return rank_; }

  private:
    Cause cause_;
    int rank_;
};

/// The devices on which tasks run: the preset `classroom` with little memory. Copies from
/// the host are free, because they bring the task's inputs.
ClusterSpec examination_cluster();

/// One run of a task on virtual devices, with each rank's inputs.
struct TaskRun {
    /// "5 ranks, 37 elements": for sentences. Runs with another `spec` need another name.
    std::string name;
    std::vector<RankTask> ranks;
    ClusterSpec spec = examination_cluster();
    /// If false, computes only shapes; times, bytes and memory stay the same. So a run
    /// can have sizes that no grader could compute. The run then leaves tensors of NaN.
    bool numbers = true;
    /// As ClusterOptions::memory_of_rank. Runs that differ in it need different names.
    std::map<int, std::int64_t> memory_of_rank{};
};

/// The width of a diagnosis in a report, without the report's indentation.
inline constexpr int kDiagnosisColumns = 72;

/// Why a run did not reach its end.
struct Trouble {
    Mark mark = Mark::failed;
    std::string text;
    bool out_of_time = false;
    /// If a device was full: what filled it, by line (OutOfMemoryError::held).
    std::vector<std::string> held{};
};

struct TaskResult {
    std::optional<Trouble> trouble;
    RunReport report;               ///< if a fault stopped the run: up to that moment
    std::vector<RankResult> ranks;  ///< complete if there is no trouble
};

/// The results of runs; each run is made only once.
class MadeRuns {
  public:
    /// Returns the result of a run. Calls `make` if there is no run yet with this name
    /// and these tasks, inputs and `numbers`.
    const TaskResult& get(const TaskRun& run, const std::function<TaskResult()>& make);
    /// Returns how many runs were made.
    std::size_t size() const { return made_.size(); }

  private:
    struct Made {
        std::vector<RankTask> inputs;
        bool numbers;
        TaskResult result;
    };
    std::multimap<std::string, Made> made_;  ///< by name
};

/// Makes a run. Each rank calls `run_rank`, which throws TaskEnded, or what devices and
/// communicators throw.
TaskResult make_run(const TaskRun& run, sim::CheckLevel check,
                    const std::function<RankResult(Rank&)>& run_rank);

/// A solution of an assignment, as criteria can look at it.
class StudentWork {
  public:
    virtual ~StudentWork() = default;

    /// Returns the result of a run of the student's program.
    virtual const TaskResult& run(const TaskRun& run) = 0;
    /// Returns one of the student's files as text; it may contain any bytes.
    virtual std::string file(const std::string& name) const = 0;
};

}  // namespace lockstep::lessons
