#include "lessons/01_gradient_accumulation/lesson.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

const std::vector<LessonEntry>& catalogue() {
    static const std::vector<LessonEntry> lessons{gradient_accumulation_lesson()};
    return lessons;
}

}  // namespace lockstep::lessons
