#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lessons/book/site.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// A lesson for the book: run once, with these options.
struct BookLesson {
    const LessonEntry* lesson = nullptr;
    LessonOptions options;  ///< resolved
};

/// Throws MissingError with the remedy if this program lacks the module for browsers.
void require_module();

/// Returns the course as a web site that needs no server and no other sites. It has these
/// lessons, which are run now, and all faults, words and laboratories, in English and in
/// Chinese. Running a lesson takes seconds, so `say` is called for each lesson. Throws
/// what a lesson throws, and MissingError as require_module() does.
Site make_book(const std::vector<BookLesson>& lessons,
               const std::function<void(const std::string&)>& say);

}  // namespace lockstep::lessons
