#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lessons/grader/kit.hpp"
#include "lessons/grader/report/grade_report.hpp"
#include "lessons/grader/source_folder.hpp"

namespace lockstep::lessons {

/// Returns a submission's name: "ada" for "all/ada/" and for "all/ada.zip". It can be a
/// part of a file's name: a longer name is cut, and ends with digits made from all of it.
std::string name_of_submission(const std::filesystem::path& path);

/// Returns 64 digits that change if the submission's files or the version of Lockstep
/// change. A .zip is not unpacked: all of its bytes matter. Empty if it cannot be read.
std::string fingerprint_of(const std::filesystem::path& submission,
                           const std::vector<std::string>& files);

/// A student's work as it was handed in: a folder with the files, a folder in which
/// exactly one subfolder has such files, or a .zip of either. What is read is read once,
/// and no links are followed (SourceFolder).
class Submission {
  public:
    /// `files` are the files that are asked for. The files of a .zip are unpacked into
    /// `scratch`, a folder that must not exist yet. Throws MissingError if the machine
    /// cannot unpack them.
    Submission(const std::filesystem::path& path, const std::vector<std::string>& files,
               const Kit& kit, const std::filesystem::path& scratch);

    /// Returns the folder that has the files; some may be missing.
    const SourceFolder& folder() const { return folder_; }
    /// Returns what is wrong with a .zip from which nothing could be unpacked.
    const std::optional<BuildFailure>& failure() const { return failure_; }

  private:
    void unpack(const std::filesystem::path& path, const std::vector<std::string>& files,
                const Kit& kit, const std::filesystem::path& scratch);

    SourceFolder folder_;
    std::optional<BuildFailure> failure_;
};

}  // namespace lockstep::lessons
