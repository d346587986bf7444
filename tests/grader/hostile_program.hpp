#pragma once

#include <string>
#include <vector>

#include "lessons/grader/confine/confined_process.hpp"
#include "tests/temporary_folder.hpp"

namespace lockstep::test {

/// The result of hostile_program.cpp. The program's first word says what it does.
struct Outcome {
    lessons::Ending ending;
    std::string output;
    std::string sentence;
};

/// A program that does what students' programs must not do. It is built only once.
class HostileProgram {
  public:
    /// Throws std::runtime_error if the program cannot be built.
    HostileProgram();

    const std::filesystem::path& folder() const { return folder_.path(); }
    /// Returns the program's plan. Its processes have the mark as a word.
    lessons::ConfinedPlan plan(const std::string& what,
                               const lessons::Confinement& confinement) const;
    Outcome run(const std::string& what, const lessons::Confinement& confinement) const;
    /// Returns those processes of the program that still run.
    std::vector<std::string> left_over() const;

  private:
    TemporaryFolder folder_;
};

const HostileProgram& hostile_program();

/// Limits for tests: 256 MiB, and more time than slow and busy machines need.
lessons::Confinement patient();
/// Those limits, but one second of processor time, for programs that never end.
lessons::Confinement tight();

}  // namespace lockstep::test
