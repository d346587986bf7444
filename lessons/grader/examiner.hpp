#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lessons/grader/confine/confined_process.hpp"
#include "lessons/grader/remote/rank_session.hpp"
#include "lessons/grader/task_run.hpp"

namespace lockstep::lessons {

/// Returns what a rank of a student's program may use.
Confinement usual_confinement();

/// A student's program, and how it is run.
struct StudentProgram {
    std::filesystem::path folder;  ///< absolute, without links
    std::string program;           ///< a file in it
    Confinement confinement = usual_confinement();
    bool shows_output = false;  ///< what it printed is told where it ended badly
};

/// Returns how the program is started, with a descriptor that it is given, or none.
ConfinedPlan confined(const StudentProgram& program, int given = -1);

/// A student's program as one rank, confined, with its line to the grader.
class StudentProcess final : public RankProcess {
  public:
    explicit StudentProcess(const StudentProgram& program);

    Frames& frames() override { return frames_; }
    /// Throws MissingError if the machine has ended it (EndedBy::outside).
    End ending() override;

  private:
    StudentProcess(const StudentProgram& program, os::SocketPair line);

    Confinement confinement_;
    bool shows_output_;
    os::Descriptor line_;
    Frames frames_;
    ConfinedProcess process_;
};

/// Runs a student's program: each rank in a confined process of its own, which asks this
/// one for all that devices and communicators do, under every check that there is.
class Examiner final : public StudentWork {
  public:
    /// Each rank has its own limits, a run `longest`.
    explicit Examiner(StudentProgram program,
                      std::chrono::seconds longest = std::chrono::seconds{20})
        : program_(std::move(program)), longest_(longest) {}

    /// A task that has run out of time once is not run again.
    const TaskResult& run(const TaskRun& run) override;

    std::string file(const std::string& name) const override;

  private:
    TaskResult make(const TaskRun& run) const;

    StudentProgram program_;
    std::chrono::seconds longest_;
    MadeRuns made_;
    std::map<std::string, std::string> late_;  ///< tasks that ran out of time, and how
};

}  // namespace lockstep::lessons
