#pragma once

#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// The lesson `gradient-accumulation`: gradient accumulation is data
/// parallelism.
LessonEntry gradient_accumulation_lesson();

}  // namespace lockstep::lessons
