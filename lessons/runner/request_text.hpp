#pragma once

#include <string>

#include "lessons/runner/arguments.hpp"

namespace lockstep::lessons {

/// Columns for help on standard output.
int help_columns();

// What the program says about itself, in lines of at most `width` columns.

std::string program_text(int width);
std::string version_text();

CommandText lessons_command_text();
CommandText lesson_command_text();
CommandText compare_command_text();
CommandText compare_backends_command_text();
CommandText schedule_command_text();
CommandText fault_command_text();
/// Of `lockstep assignment`: what it can do, and each of that.
std::string assignment_text(int width);
CommandText assignment_list_command_text();
CommandText assignment_new_command_text();
CommandText assignment_targets_command_text();
CommandText assignment_gradescope_command_text();
CommandText grade_command_text();
CommandText doctor_command_text();

/// What there is for --set: the settings that every lesson understands, and those of the
/// lesson called `slug` where there is one.
std::string settings_text(const std::string& slug, int width);

}  // namespace lockstep::lessons
