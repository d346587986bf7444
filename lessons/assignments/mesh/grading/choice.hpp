#pragma once

#include "lessons/assignments/mesh/grading/settings.hpp"
#include "lessons/grader/judge.hpp"

// a11.2: the mesh that choose() chose, and a step of train() on it.

namespace lockstep::lessons::mesh {

/// No device holds more than it has.
void judge_fits(Judge& judge, Kind kind);
/// A step takes at most so much longer than the library's on its best mesh.
void judge_time(Judge& judge, Kind kind, int percent);

}  // namespace lockstep::lessons::mesh
