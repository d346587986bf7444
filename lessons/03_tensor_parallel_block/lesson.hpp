#pragma once

#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// The lesson `tensor-parallel-block`: a transformer block, and a whole
/// GPT, whose weights several devices share out.
LessonEntry tensor_parallel_block_lesson();

}  // namespace lockstep::lessons
