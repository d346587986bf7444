#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lessons/grader/task_run.hpp"

namespace lockstep::lessons {

/// A solution of an assignment that is compiled into the grader: the reference, or a copy
/// of it with a mistake (made by lessons/assignments/mistakes.py).
struct Solution {
    std::string title;    ///< "skips the all-reduce"
    std::string says;     ///< tells students that they made this mistake; or empty
    std::string expects;  ///< if `says` is empty, students read this; "..." is any text
    std::vector<std::string> loses;  ///< ids of criteria
    Tasks tasks;
};

/// A solution's runs, in the grader's own process.
class SolutionWork final : public StudentWork {
  public:
    /// `solution` must outlive this. `files` has the texts that criteria look at, by
    /// name.
    SolutionWork(const Solution& solution, sim::CheckLevel check,
                 std::map<std::string, std::string> files = {})
        : solution_(solution), check_(check), files_(std::move(files)) {}

    const TaskResult& run(const TaskRun& run) override;
    std::string file(const std::string& name) const override;

  private:
    RankResult run_rank(Rank& rank, const RankTask& given) const;

    const Solution& solution_;
    sim::CheckLevel check_;
    std::map<std::string, std::string> files_;
    MadeRuns made_;
};

/// The answers that a grader knows and a student does not: the runs of the reference and
/// of its mistaken copies.
class Answers {
  public:
    /// The first solution is the reference.
    explicit Answers(std::vector<Solution> solutions);
    Answers(const Answers&) = delete;
    Answers& operator=(const Answers&) = delete;

    /// Returns the result of the reference's run. Throws GradingError if it does not
    /// reach its end.
    const TaskResult& right(const TaskRun& run);
    /// Returns the sentence of the first mistake whose run `fits`; empty if none does.
    /// Mistakes whose `loses` begins with `criterion` are tried first. Each mistake that
    /// has a sentence is run anew.
    std::string mistake(const TaskRun& run, const std::string& criterion,
                        const std::function<bool(const TaskResult&)>& fits) const;

  private:
    std::vector<Solution> solutions_;
    SolutionWork reference_;
};

}  // namespace lockstep::lessons
