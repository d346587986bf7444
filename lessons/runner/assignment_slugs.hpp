#pragma once

#include <array>

namespace lockstep::lessons {

/// The assignments, in the order of the course.
inline constexpr std::array kAssignmentSlugs{
    "ring-all-reduce",   "data-parallel", "ddp-buckets", "zero",
    "column-row-linear", "pipeline-1f1b", "two-buffers", "ring-attention",
    "ulysses",           "experts",       "mesh",        "decode",
    "debug-the-cluster"};

}  // namespace lockstep::lessons
