#include "lessons/runner/lesson.hpp"

#include <fmt/format.h>

namespace lockstep::lessons {

void Lesson::check_values(Page& page, const Check& check) const {
    if (has_numbers())
        page.check(check);
    else
        page.text(fmt::format("({}: not compared, as this run computes shapes only.)",
                              check.name));
}

}  // namespace lockstep::lessons
