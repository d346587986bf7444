#pragma once

#include <string>
#include <vector>

#include "lessons/runner/command.hpp"
#include "program/command_line.hpp"

namespace lockstep::lessons {

// Each of these functions is defined in the file that runs its command.

void declare_lessons(CommandLine& line);
void declare_lesson(CommandLine& line);
void declare_hand_in(CommandLine& line);
void declare_book(CommandLine& line);
void declare_compare(CommandLine& line);
void declare_schedule(CommandLine& line);
void declare_mesh(CommandLine& line);
void declare_cluster(CommandLine& line);
void declare_calibrate(CommandLine& line);
void declare_serve(CommandLine& line);
void declare_fault(CommandLine& line);
void declare_word(CommandLine& line);
void declare_assignment(CommandLine& line);
void declare_grade(CommandLine& line);
void declare_doctor(CommandLine& line);

/// Returns the program's command line, without commands.
CommandLine command_line(std::vector<std::string> words);

/// Declares all commands.
void declare_commands(CommandLine& line);

/// Returns all commands as JSON, for the man page and the shell's completion: `lockstep
/// --describe`.
std::string description();

/// The exit statuses of the program.
inline const std::string kExitStatus =
    "0 success; 1 a check or a comparison failed, or a program has a mistake; 2 wrong "
    "usage; 3 the machine lacks something; 4 a bug in Lockstep.";

/// Declares the options that decide what a lesson runs, except its backend. Other
/// commands that run a lesson have the same options. `line` names the lesson.
void declare_lesson_options(Command& command, LessonOptions& options,
                            const CommandLine& line);

/// Declares --lang, the language of pages.
void declare_language(Command& command, std::optional<Language>& language);

/// Returns the language that was asked for, or else the locale's.
Language language_of(std::optional<Language> asked);

/// Runs a lesson and shows it as a page in a browser, or says where the page is.
int show_in_browser(const LessonEntry& lesson, const LessonOptions& options);

/// The meaning of --json in every command.
inline const std::string kJsonMeaning = "print one JSON document and nothing else";

/// Returns an entry of a list: its head, then indented paragraphs.
std::string listed(const std::string& head, const std::vector<std::string>& paragraphs);

}  // namespace lockstep::lessons
