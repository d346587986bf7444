#pragma once

#include <map>
#include <string>

#include "src/device/token_rows.hpp"
#include "src/nn/module.hpp"
#include "src/trial/outcome.hpp"
#include "src/trial/task.hpp"

namespace lockstep {

/// How a tensor is distributed over ranks. `whole`: each rank gets all of it. `columns`:
/// each gets equally many adjacent columns. Otherwise each rank gets equally many rows of
/// the first dimension, and the enumerator names the order of tokens.
enum class Deal { whole, columns, contiguous, striped, zigzag };

Deal in_order(TokenOrder order);
/// Returns a rank's part. Throws UsageError unless the number of columns or rows is a
/// multiple of `ranks`.
Part part_dealt(Deal deal, const Shape& whole, int rank, int ranks);

/// A whole input, and how it is distributed over ranks.
struct Input {
    HostTensor whole;
    Deal deal = Deal::whole;
};

/// The inputs on which a task is run.
struct Case {
    std::map<std::string, Input> inputs;
    std::map<std::string, std::int64_t> numbers{};
    DType dtype = DType::f64;  ///< of floating-point inputs
};

/// Runs the task on every rank with the rank's parts of the inputs. Ranks keep the
/// outputs, except texts, under the outputs' names. A run without numbers keeps nothing.
Outcome outcome_of(Cluster& cluster, const Task& task, const Case& given,
                   Mistakes mistakes = Mistakes::thrown);

/// Forward, or forward and backward.
enum class Passes { forward, both };
/// How a module's backward runs: whole, or in its two halves.
enum class Backward { whole, halves };

/// Runs a module as a task: forward of "x" and, if there is a "dy", backward of "dy". Its
/// outputs are "y", distributed like dy, "dx", distributed like x, and "value/NAME" and
/// "grad/NAME" of each parameter. A dx that the module does not compute is left out.
/// Without a dy, the only output is "y".
void pass_through(Module& module, const TaskInputs& in, TaskOutputs& out,
                  Backward backward = Backward::whole);

}  // namespace lockstep
