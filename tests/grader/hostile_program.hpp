#pragma once

#include <string>
#include <vector>

#include "lessons/grader/confine/confined_process.hpp"
#include "tests/temporary_folder.hpp"

namespace lockstep::test {

/// The result of hostile_program.cpp, started with a word that says what it does.
struct Outcome {
    lessons::Ending ending;
    std::string output;
    std::string sentence;
};

/// A program that does what a student's program must not. It is built once for all tests.
class HostileProgram {
  public:
    /// Throws std::runtime_error if the program cannot be built.
    HostileProgram();

    const std::filesystem::path& folder() const { return folder_.path(); }
    /// Returns the program's plan. All of its processes have the mark among their words.
    lessons::ConfinedPlan plan(const std::string& what,
                               const lessons::Confinement& confinement) const;
    Outcome run(const std::string& what, const lessons::Confinement& confinement) const;
    /// Returns the program's processes that still run.
    std::vector<std::string> left_over() const;

  private:
    TemporaryFolder folder_;
};

const HostileProgram& hostile_program();

/// Limits for tests: 256 MiB, and more time than a slow and busy machine needs.
lessons::Confinement patient();
/// The same, with a second of processor time, for programs that never end.
lessons::Confinement tight();

}  // namespace lockstep::test
