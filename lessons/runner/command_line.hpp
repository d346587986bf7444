#pragma once

#include <string>
#include <vector>

#include "lessons/runner/command.hpp"
#include "program/command_line.hpp"

namespace lockstep::lessons {

// Each command is declared in the file that runs it.

void declare_lessons(CommandLine& line);
void declare_lesson(CommandLine& line);
void declare_hand_in(CommandLine& line);
void declare_book(CommandLine& line);
void declare_compare(CommandLine& line);
void declare_schedule(CommandLine& line);
void declare_mesh(CommandLine& line);
void declare_serve(CommandLine& line);
void declare_fault(CommandLine& line);
void declare_word(CommandLine& line);
void declare_assignment(CommandLine& line);
void declare_grade(CommandLine& line);
void declare_doctor(CommandLine& line);

/// Returns the program's command line, without commands.
CommandLine command_line(std::vector<std::string> words);

/// Declares all of them.
void declare_commands(CommandLine& line);

/// Returns all commands as JSON, from which the man page and the shell's completion are
/// made: `lockstep --describe`.
std::string description();

/// Says how the program ends.
inline const std::string kExitStatus =
    "0; 1 a check or a comparison failed, or a program was found at fault; 2 wrong "
    "usage; 3 the machine lacks something; 4 a mistake of Lockstep itself.";

/// Declares what decides what a lesson runs, but for its backend; other commands that run
/// a lesson take the same. The lesson is the one that is named in the line.
void declare_lesson_options(Command& command, LessonOptions& options,
                            const CommandLine& line);

/// Declares --lang, the language of pages.
void declare_language(Command& command, std::optional<Language>& language);

/// Returns the language that was asked for, else the locale's.
Language language_of(std::optional<Language> asked);

/// Runs a lesson and shows it as a page in a browser, or says where the page is.
int show_in_browser(const LessonEntry& lesson, const LessonOptions& options);

/// Says what --json means in every command.
inline const std::string kJsonMeaning = "print one JSON document and nothing else";

/// Returns a list's entry: its head, and below it paragraphs, indented.
std::string listed(const std::string& head, const std::vector<std::string>& paragraphs);

}  // namespace lockstep::lessons
