#pragma once

#include <string>
#include <vector>

#include "lessons/grader/confine/confined_process.hpp"
#include "tests/temporary_folder.hpp"

namespace lockstep::test {

/// How a run of kHostileSource ended.
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
    /// Returns a plan to run the program, which then does `what`.
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
/// The same limits, but one second of processor time, for programs that never end.
lessons::Confinement tight();

}  // namespace lockstep::test
