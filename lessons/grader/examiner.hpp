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

/// Returns the limits of one rank of a student's program.
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
    /// Throws MissingError if the machine ended the process (EndedBy::outside).
    End ending() override;

  private:
    StudentProcess(const StudentProgram& program, os::SocketPair line);

    Confinement confinement_;
    bool shows_output_;
    os::Descriptor line_;
    Frames frames_;
    ConfinedProcess process_;
};

/// Runs a student's program. Each rank is a confined process, which asks this process for
/// everything that devices and communicators do. All checks of the simulator are on.
class Examiner final : public StudentWork {
  public:
    /// Each rank has its own limits; a run lasts at most `longest`.
    explicit Examiner(StudentProgram program,
                      std::chrono::seconds longest = std::chrono::seconds{20})
        : program_(std::move(program)), longest_(longest) {}

    /// A task that has run out of time is not run again.
    const TaskResult& run(const TaskRun& run) override;

    std::string file(const std::string& name) const override;

  private:
    TaskResult make(const TaskRun& run) const;

    StudentProgram program_;
    std::chrono::seconds longest_;
    MadeRuns made_;
    std::map<std::string, std::string> late_;  ///< messages about late tasks, by task
};

}  // namespace lockstep::lessons
