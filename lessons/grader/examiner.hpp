#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lessons/grader/confine/confined_process.hpp"
#include "lessons/grader/remote/rank_session.hpp"
#include "lessons/grader/task_run.hpp"

namespace lockstep::lessons {

/// Returns the limits of one rank of a student's program, for the pace of this machine.
Confinement usual_confinement();

/// A student's program, and how to run it.
struct StudentProgram {
    std::filesystem::path folder;  ///< absolute, without links
    std::string program;           ///< a file in it
    Confinement confinement = usual_confinement();
    bool shows_output = false;  ///< reports quote its output if it ended badly
};

/// Returns the plan to start the program; `given` is a descriptor that the program gets
/// (-1: none).
ConfinedPlan confined(const StudentProgram& program, int given = -1);

/// A student's program as one rank, confined, with its connection to the grader.
class StudentProcess final : public RankProcess {
  public:
    explicit StudentProcess(const StudentProgram& program);

    Frames& frames() override { return frames_; }
    std::optional<double> busy_seconds() override;
    /// Throws MissingError if the machine ended the process (EndedBy::outside), or if it
    /// was so slow that the last limit, Confinement::wall_seconds, was reached.
    End ending() override;
    void kill() override { process_.kill(); }
    /// Ends the process; returns the processor time that it has used.
    double finish();

  private:
    StudentProcess(const StudentProgram& program, os::SocketPair line);

    Confinement confinement_;
    double busy_seen_ = -1;
    bool shows_output_;
    os::Descriptor line_;
    Frames frames_;
    ConfinedProcess process_;
};

/// The limits of all runs of a student's program.
struct ExamLimits {
    RunLimits run{};            ///< of each run
    double rank_seconds = 400;  ///< processor time of all ranks in all runs
};

/// Returns limits that are multiples of what this machine needs now (pace()).
ExamLimits usual_limits();

/// What all ranks in all runs have used.
struct UsedSeconds {
    double computing = 0;  ///< processor time
    double idle = 0;
};
/// In memory that this process and all that it forks share.
using SharedUsedSeconds = std::unique_ptr<UsedSeconds, void (*)(UsedSeconds*)>;
SharedUsedSeconds shared_used_seconds();

/// Runs a student's program. Each rank is a confined process, which asks this process for
/// everything that devices and communicators do. All checks of the simulator are on. The
/// limits hold for all processes together in which one examiner runs the program, so
/// nobody gains time if a judging process dies.
class Examiner final : public StudentWork {
  public:
    explicit Examiner(StudentProgram program, const ExamLimits& limits = usual_limits())
        : program_(std::move(program)), limits_(limits) {}

    /// A task that has run out of time is not run again.
    const TaskResult& run(const TaskRun& run) override;

    std::string file(const std::string& name) const override;

  private:
    TaskResult make(const TaskRun& run);

    StudentProgram program_;
    ExamLimits limits_;
    SharedUsedSeconds used_ = shared_used_seconds();
    MadeRuns made_;
    std::map<std::string, std::string> late_;  ///< messages about late tasks, by task
};

}  // namespace lockstep::lessons
