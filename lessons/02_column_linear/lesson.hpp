#pragma once

#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// The lesson `column-linear`: a linear layer on several devices, by
/// columns and by rows.
LessonEntry column_linear_lesson();

}  // namespace lockstep::lessons
