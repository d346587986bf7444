#pragma once

#include <string>

#include "lessons/assignments/left_schedule.hpp"

namespace lockstep::lessons {

/// Trains a small stack of layers in f64, one a stage, by the student's schedule and by
/// the right one, and asks that both leave the same gradients and weights, but for the
/// order of sums: by SGD, on two pipelines side by side, which share each batch's
/// micro-batches and sum their gradients. Both schedules are valid, have a chunk a stage,
/// and update the weights behind every `per_update` micro-batches. `rule` says how the
/// weights change, for sentences. Schedules of more than 5 stages are not asked.
void ask_trained(Judge& judge, const LeftSchedules& made, int per_update,
                 const std::string& rule = "");

}  // namespace lockstep::lessons
