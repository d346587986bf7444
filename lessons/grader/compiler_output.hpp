#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lessons/grader/report/grade_report.hpp"

namespace lockstep::lessons {

/// The first error in what GCC or clang printed, or the linker that they called, run in
/// a folder. Where it stands in a file that is not in the folder, file and line are the
/// innermost ones there that led to it, if any is named.
std::optional<BuildFailure> first_error(const std::string& output,
                                        const std::filesystem::path& folder);

}  // namespace lockstep::lessons
