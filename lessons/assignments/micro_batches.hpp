#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lessons/grader/judge.hpp"
#include "src/core/host_tensor.hpp"

namespace lockstep::lessons {

/// A case for assignments in which ranks train one network together: a classifier of
/// linear layers with tanh between them, and the rows of each rank's micro-batches.
struct MicroBatchCase {
    std::string label;                            ///< "small buckets"
    std::vector<std::vector<std::int64_t>> rows;  ///< by rank and micro-batch
    int layers = 3;
    std::int64_t width = 7;
    std::int64_t features = 5;
    std::int64_t classes = 4;

    std::int64_t ranks() const { return static_cast<std::int64_t>(rows.size()); }
    /// Returns a name such as "small buckets, 2 ranks, micro-batches of 3+1, 2 rows".
    std::string name() const;
    /// Returns names and shapes of the parameters, in the network's order:
    /// "layer0.weight" (out, in), "layer0.bias" (out), and so on.
    std::vector<std::pair<std::string, Shape>> parameters() const;
    std::int64_t in(int layer) const { return layer == 0 ? features : width; }
    std::int64_t out(int layer) const { return layer + 1 == layers ? classes : width; }
};

/// Draws a network's sizes and the rows of each micro-batch. `micro_batches` has the
/// number of micro-batches of each rank; the last number must be 1 or more.
MicroBatchCase draw_case(const Judge& judge, const std::string& label,
                         const std::vector<int>& micro_batches);

/// Draws the values of each parameter.
std::map<std::string, HostTensor> draw_network(const Judge& judge,
                                               const MicroBatchCase& one);

/// Returns the run of a task on the case's ranks. Each rank is given the network's
/// parameters, the number of its layers, and its own rows.
TaskRun run_on_network(const Judge& judge, const MicroBatchCase& one, RankTask given);

/// If the task is "train", judges the parameters at the end of the run, which must be the
/// same on every rank. Otherwise judges the gradients.
void judge_parameters(Judge& judge, const TaskRun& run);

/// Judges whether ranks compute only their own rows: all ranks together compute no more
/// than half as much again as the reference.
void judge_own_rows(Judge& judge, const TaskRun& run);

/// Returns the run of a task on the case's ranks. Drawn rows are added to each rank's
/// inputs: "x" and "targets" of all its micro-batches, which given_batches() splits.
TaskRun run_on_rows(const Judge& judge, const MicroBatchCase& one,
                    std::vector<RankTask> given);

}  // namespace lockstep::lessons
