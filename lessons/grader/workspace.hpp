#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lessons/grader/assignment.hpp"
#include "lessons/grader/kit.hpp"
#include "lessons/grader/report/grade_report.hpp"

namespace lockstep::lessons {

/// A fresh folder in which a student's program is built and run: the student's own files,
/// and nothing else of theirs; the rest is the kit's, compiled or not. It goes with this
/// object.
class Workspace {
  public:
    /// Throws std::system_error if it cannot be made.
    Workspace();
    ~Workspace();
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    /// Copies the files and builds the program; what the student did wrong, or nothing.
    std::optional<BuildFailure> build(const Assignment& assignment, const Kit& kit,
                                      const std::filesystem::path& student,
                                      const std::vector<std::string>& compiler);

    const std::filesystem::path& folder() const { return folder_; }
    static constexpr const char* kProgram = "program";

  private:
    std::filesystem::path folder_;
};

/// Builds an empty program and runs it as students' are. Throws MissingError that says
/// what this machine lacks for that.
void require_can_grade(const std::vector<std::string>& compiler);

}  // namespace lockstep::lessons
