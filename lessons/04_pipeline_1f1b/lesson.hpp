#pragma once

#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// The lesson `pipeline-1f1b`: a model whose layers lie on several devices,
/// and the order in which these work.
LessonEntry pipeline_1f1b_lesson();

}  // namespace lockstep::lessons
