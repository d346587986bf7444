#pragma once

#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// Runs the all-reduce written by hand and the built-in one on the same
/// buffers, compares values, messages and bytes, and shows where which
/// algorithm wins.
void show_ring(Page& page, const LessonOptions& options, int ranks,
               bool has_numbers);

/// Three questions for a pencil, each answered by a run.
void show_predictions(Page& page);

}  // namespace lockstep::lessons
