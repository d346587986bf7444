#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lessons/grader/assignment.hpp"
#include "lessons/grader/task_run.hpp"

namespace lockstep::lessons {

/// Returns all assignments, in the order of the course.
const std::vector<Assignment>& assignments();

/// Returns an assignment by its name. Throws UsageError with all names if there is none.
const Assignment& find_assignment(const std::string& slug);

/// Returns where a criterion is taught: "ring-self-attention, step 7". `name` is the name
/// of the step's section on the lesson's page, "## How long a sequence fits {#memory}".
/// Throws UsageError if there is no such step.
std::string lesson_step(const std::string& lesson, const std::string& name);

/// Returns `criteria`. Criterion::lesson of each has the name of a step of `lesson`; this
/// function replaces the name with the result of lesson_step().
std::vector<Criterion> taught_by(const std::string& lesson,
                                 std::vector<Criterion> criteria);

/// A function that draws runs of a task.
using Runs = std::function<std::vector<TaskRun>(const Judge&, const std::string& task)>;

/// Returns a criterion's function. It judges each run that the functions in `all` draw.
std::function<void(Judge&)> each_run(
    const std::vector<Runs>& all, const std::string& task,
    const std::function<void(Judge&, const TaskRun&)>& judge_run);

// The assignments, each defined in its grading/criteria.cpp:

/// Reduce-scatter, all-gather and all-reduce from send and recv.
Assignment ring_all_reduce_assignment();
/// Gradient accumulation, and data parallelism over shards of unequal sizes.
Assignment data_parallel_assignment();
/// Gradients in buckets that are all-reduced while backward goes on.
Assignment ddp_buckets_assignment();
/// The optimizer's state, gradients and values, sharded over replicas.
Assignment zero_assignment();
/// A linear layer by columns and by rows, and an MLP of both.
Assignment column_row_linear_assignment();
/// Pipeline schedules as data: 1F1B, a limit of memory, and backward in halves.
Assignment pipeline_1f1b_assignment();
/// PipeDream-2BW: a pipeline without flushes, its memory, and when to choose it.
Assignment two_buffers_assignment();
/// The online softmax on the host; Ring Attention, forward and backward.
Assignment ring_attention_assignment();
/// Attention between two all-to-alls: from tokens to heads, and back.
Assignment ulysses_assignment();
/// A layer of experts: the gate, copies that are sent to experts and back, a capacity.
Assignment experts_assignment();
/// The program of one device of a mesh, and which mesh to choose.
Assignment mesh_assignment();
/// Generating with a cache, on one device and on several, and a batcher of many requests.
Assignment decode_assignment();
/// Six programs, each with a mistake to find and to fix.
Assignment debug_the_cluster_assignment();

// Their solutions, which mistakes.py makes from reference/ and mistakes.txt:

std::vector<Solution> ring_all_reduce_solutions();
std::vector<Solution> data_parallel_solutions();
std::vector<Solution> ddp_buckets_solutions();
std::vector<Solution> zero_solutions();
std::vector<Solution> column_row_linear_solutions();
std::vector<Solution> pipeline_1f1b_solutions();
std::vector<Solution> two_buffers_solutions();
std::vector<Solution> ring_attention_solutions();
std::vector<Solution> ulysses_solutions();
std::vector<Solution> experts_solutions();
std::vector<Solution> mesh_solutions();
std::vector<Solution> decode_solutions();
std::vector<Solution> debug_the_cluster_solutions();

}  // namespace lockstep::lessons
