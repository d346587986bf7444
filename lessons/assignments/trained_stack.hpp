#pragma once

#include <map>
#include <string>

#include "src/core/host_tensor.hpp"
#include "src/pipeline/schedule.hpp"

namespace lockstep::lessons {

/// A small stack of layers in f64, one a stage, that SGD trains on two pipelines side by
/// side, which share each batch's micro-batches and sum their gradients. What is left of
/// each parameter, by name: "grad/0.weight", the last batch's, and "value/0.weight".
using TrainedStack = std::map<std::string, HostTensor>;

/// By the schedule, on virtual devices. It must be valid, with a chunk a stage, and
/// update the weights behind every `per_update` micro-batches. Throws UsageError if it
/// cannot train.
TrainedStack train_by(const Schedule& schedule, int per_update);

/// By one device: the same numbers, but for the order of sums. The gradients of batch b
/// are at weights W(max(0, b - 1)) and change W(b): with one batch, those of plain SGD;
/// with more, PipeDream-2BW's (Narayanan et al. 2021, 2006.09503, section 3.1).
TrainedStack train_alone(int stages, int micro_batches, int per_update);

}  // namespace lockstep::lessons
