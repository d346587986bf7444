#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lessons/book/site.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// A lesson as the book shows it: run once, with these options.
struct BookLesson {
    const LessonEntry* lesson = nullptr;
    LessonOptions options;  ///< resolved
};

/// Throws MissingError, saying how to get it, unless this program has the module that
/// computes in a browser.
void require_module();

/// Returns the course as a web site that needs no server and nothing from outside: these
/// lessons, which are run for it, and all faults, words and laboratories, in English and
/// in Chinese. `say` is told what is being done, since a lesson takes seconds. Throws
/// what a lesson throws, and MissingError without the module for browsers.
Site make_book(const std::vector<BookLesson>& lessons,
               const std::function<void(const std::string&)>& say);

}  // namespace lockstep::lessons
