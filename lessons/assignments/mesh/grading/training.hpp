#pragma once

#include "lessons/assignments/mesh/grading/given.hpp"
#include "lessons/grader/judge.hpp"

// a11.1: what train() leaves on meshes that the grader chooses.

namespace lockstep::lessons::mesh {

/// A small GPT on a mesh, with a seed that is drawn, and one step of Sgd.
GivenJob small_case(const Judge& judge, const Axes& axes, int sequences);

void judge_loss(Judge& judge);
void judge_gradients(Judge& judge);
void judge_norm(Judge& judge);
void judge_steps(Judge& judge);
void judge_share(Judge& judge);
void judge_state(Judge& judge);

/// The weights after a step by the gradient itself are the reference's.
void judge_gradients_of(Judge& judge, const GivenJob& drawn);

inline constexpr RankFigure kFlops{"computed", "flops",
                                   [](const RankReport& rank) { return rank.flops; }};
inline constexpr RankFigure kState{
    "optimizer's state", "bytes of memory", [](const RankReport& rank) {
        return rank.memory.peak_of(MemoryCategory::optimizer);
    }};
/// What all ranks have of a figure together.
std::int64_t sum_of(const RunReport& report, const RankFigure& figure);

}  // namespace lockstep::lessons::mesh
