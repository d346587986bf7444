#pragma once

#include <map>
#include <string>

#include "src/core/host_tensor.hpp"
#include "src/pipeline/schedule.hpp"

namespace lockstep::lessons {

// One training step of a small stack of layers in f64, one layer a stage. What it leaves
// of each parameter, by name: "grad/0.weight", and "value/0.weight" after the update.
using StepResult = std::map<std::string, HostTensor>;

/// By the schedule, on virtual devices: two pipelines side by side, which share the
/// micro-batches and sum their gradients. The schedule must be valid, with a chunk a
/// stage.
StepResult step_by(const Schedule& schedule);

/// By one device: the same numbers, but for the order of sums.
StepResult step_alone(int stages, int micro_batches);

}  // namespace lockstep::lessons
