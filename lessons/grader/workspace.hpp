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
#include "lessons/grader/work_folder.hpp"

namespace lockstep::lessons {

/// A fresh folder in which a student's program is built and run: the student's own files,
/// and nothing else of theirs; the rest is the kit's, compiled or not. It is closed to
/// others, and goes with this object, or with the grader. Making one throws
/// std::system_error if that cannot be.
class Workspace {
  public:
    /// Copies the files and builds the program; what the student did wrong, or nothing.
    std::optional<BuildFailure> build(const Assignment& assignment, const Kit& kit,
                                      const std::filesystem::path& student,
                                      const std::vector<std::string>& compiler);

    /// Returns what build() has made.
    StudentProgram program() const;
    /// Returns how sources in the folder are built; which, the caller adds.
    BuildPlan plan(const std::vector<std::string>& compiler) const;
    const std::filesystem::path& folder() const { return folder_.path(); }

  private:
    ClaimedUser user_;
    WorkFolder folder_;
};

/// Builds an empty program and runs it as students' are. Throws MissingError that says
/// what this machine lacks for that.
void require_can_grade(const std::vector<std::string>& compiler);

/// Builds what is handed out, which anybody can; asked where a student's could not be
/// built. Throws MissingError if this cannot be, either: then the machine is why.
void require_can_build(const Assignment& assignment, const Kit& kit,
                       const std::vector<std::string>& compiler);

}  // namespace lockstep::lessons
