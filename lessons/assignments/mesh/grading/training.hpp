#pragma once

#include <string>

#include "lessons/assignments/mesh/grading/given.hpp"
#include "lessons/grader/judge.hpp"

// a11.1: what train() leaves on meshes that the grader chooses.

namespace lockstep::lessons::mesh {

/// A small GPT on a mesh, with a seed that is drawn.
MeshCase small_case(const Judge& judge, const Axes& axes, int sequences);

void judge_loss(Judge& judge);
void judge_gradients(Judge& judge);
void judge_norm(Judge& judge);
void judge_steps(Judge& judge);
void judge_share(Judge& judge);
void judge_state(Judge& judge);

/// The weights after a step by the gradient itself are the reference's.
void judge_gradients_of(Judge& judge, const MeshCase& drawn);

/// What all ranks hold at most, each by itself.
std::int64_t peaks_of(const RunReport& report, MemoryCategory category);

}  // namespace lockstep::lessons::mesh
