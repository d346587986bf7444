#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lessons/grader/assignment.hpp"
#include "lessons/grader/build_program.hpp"
#include "lessons/grader/confine/claimed_user.hpp"
#include "lessons/grader/examiner.hpp"
#include "lessons/grader/kit.hpp"
#include "lessons/grader/report/grade_report.hpp"
#include "lessons/grader/source_folder.hpp"
#include "lessons/grader/work_folder.hpp"

namespace lockstep::lessons {

/// A fresh folder in which a student's program is built and run. It contains the
/// assignment's files as the student wrote them; the rest comes from the kit. Other users
/// cannot enter it, and it is removed with this object, or when the grader ends. The
/// constructor throws std::system_error if the folder cannot be made.
class Workspace {
  public:
    /// Copies the files and builds the program. Returns the student's mistake, or
    /// nothing.
    std::optional<BuildFailure> build(const Assignment& assignment, const Kit& kit,
                                      const SourceFolder& student,
                                      const std::vector<std::string>& compiler);

    /// Returns the program that build() has made.
    StudentProgram program() const;
    /// Returns how to build sources in the folder; the caller adds the sources.
    BuildPlan plan(const std::vector<std::string>& compiler) const;
    const std::filesystem::path& folder() const { return folder_.path(); }

  private:
    ClaimedUser user_;
    WorkFolder folder_;
};

/// Builds an empty program and runs it as a student's program. If this fails, throws
/// MissingError, which names what this machine lacks.
void require_can_grade(const std::vector<std::string>& compiler);

/// Builds the handout, which always compiles. Call this if a student's program could not
/// be built. If the handout cannot be built either, the machine is the cause: throws
/// MissingError.
void require_can_build(const Assignment& assignment, const Kit& kit,
                       const std::vector<std::string>& compiler);

}  // namespace lockstep::lessons
