#pragma once

#include "lessons/assignments/mesh/grading/given.hpp"
#include "lessons/grader/judge.hpp"

// a11.1: the results of train() on meshes that the grader chooses.

namespace lockstep::lessons::mesh {

/// Returns a job of a small GPT on a mesh, with a drawn seed, and one step of SGD.
GivenJob small_case(const Judge& judge, const Axes& axes, int sequences);

void judge_loss(Judge& judge);
void judge_gradients(Judge& judge);
void judge_norm(Judge& judge);
void judge_steps(Judge& judge);
void judge_share(Judge& judge);
void judge_state(Judge& judge);

/// Judges the weights after the job, which has one step of SGD.
void judge_gradients_of(Judge& judge, const GivenJob& drawn);

inline constexpr RankFigure kState{
    "optimizer's state", "bytes of memory", [](const RankReport& rank) {
        return rank.memory.peak_of(MemoryCategory::optimizer);
    }};
/// Returns the sum of a figure over all ranks.
std::int64_t sum_of(const RunReport& report, const RankFigure& figure);

}  // namespace lockstep::lessons::mesh
