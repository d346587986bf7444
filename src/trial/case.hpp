#pragma once

#include <map>
#include <string>

#include "src/device/token_rows.hpp"
#include "src/nn/module.hpp"
#include "src/trial/outcome.hpp"
#include "src/trial/task.hpp"

namespace lockstep {

/// How ranks share a tensor out: each gets all of it, as many columns as the others, side
/// by side, or as many rows of the first dimension, in one of the orders of tokens.
enum class Deal { whole, columns, contiguous, striped, zigzag };

Deal in_order(TokenOrder order);
/// Returns a rank's part. Throws UsageError unless the ranks divide what is dealt.
Part part_dealt(Deal deal, const Shape& whole, int rank, int ranks);

/// An input, whole, and how ranks share it out.
struct Input {
    HostTensor whole;
    Deal deal = Deal::whole;
};

/// What a task is tried on.
struct Case {
    std::map<std::string, Input> inputs;
    std::map<std::string, std::int64_t> numbers{};
    DType dtype = DType::f64;  ///< that floating inputs are given in
};

/// Runs the task on every rank with its parts of the inputs. Ranks keep its outputs, but
/// for texts, under their names; in a run of shapes only, nothing.
Outcome outcome_of(Cluster& cluster, const Task& task, const Case& given,
                   Mistakes mistakes = Mistakes::thrown);

/// Forward, or forward and backward.
enum class Passes { forward, both };
/// Backward goes through a module at once, or in its two halves.
enum class Backward { whole, halves };

/// A task's pass through a module: forward of "x" and, if there is a "dy", backward of
/// it. Leaves "y", which is dealt as dy is, "dx", which is dealt as x is, and of each
/// parameter "value/NAME" and "grad/NAME". A dx that the module does not compute is left
/// out, and so are parameters if there is no dy.
void pass_through(Module& module, const TaskInputs& in, TaskOutputs& out,
                  Backward backward = Backward::whole);

}  // namespace lockstep
