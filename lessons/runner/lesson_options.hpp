#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lessons/runner/arguments.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// What a lesson is asked for by the options of lesson_command_text() that are given.
/// Throws UsageError with one sentence that names the option and the value.
LessonOptions lesson_options(const Arguments& arguments);

/// The value of an option that names a file or folder.
std::optional<std::filesystem::path> path_of(const Arguments& arguments,
                                             const std::string& option);

}  // namespace lockstep::lessons
