#pragma once

#include <string>
#include <vector>

#include "lessons/grader/confine/confined_process.hpp"
#include "tests/temporary_folder.hpp"

namespace lockstep::test {

/// What hostile_program.cpp came to, started with a word that says what it does.
struct Outcome {
    lessons::Ending ending;
    std::string output;
    std::string sentence;
};

/// A program that does what a student's must not, built once for all tests.
class HostileProgram {
  public:
    /// Throws std::runtime_error where it cannot be built.
    HostileProgram();

    const std::filesystem::path& folder() const { return folder_.path(); }
    /// The program's plan. All of its processes have the mark among their words.
    lessons::ConfinedPlan plan(const std::string& what,
                               const lessons::Confinement& confinement) const;
    Outcome run(const std::string& what, const lessons::Confinement& confinement) const;
    /// Processes that came of it and are still there.
    std::vector<std::string> left_over() const;

  private:
    TemporaryFolder folder_;
};

const HostileProgram& hostile_program();

/// Limits for tests: 256 MiB, and more time than a slow and busy machine takes.
lessons::Confinement patient();
/// For programs that compute for ever: a second of processor time.
lessons::Confinement tight();

}  // namespace lockstep::test
