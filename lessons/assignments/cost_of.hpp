#pragma once

#include "src/comm/rank.hpp"
#include "src/cost/cluster_spec.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::lessons {

/// Runs a program of the grader's own, such as the library's strategy that an assignment
/// asks for, on devices as students' programs have them, or on others, and returns what
/// it cost: time, bytes, memory. Computes shapes only, so it must not look at a value.
RunReport cost_of(int ranks, const Program& program);
RunReport cost_of(int ranks, const Program& program, const ClusterSpec& spec);

}  // namespace lockstep::lessons
