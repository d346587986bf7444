#pragma once

#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// The lesson `ring-self-attention`: sequences whose tokens lie on several
/// devices, and the attention that has to see them all.
LessonEntry ring_self_attention_lesson();

}  // namespace lockstep::lessons
