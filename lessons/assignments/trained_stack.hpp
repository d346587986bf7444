#pragma once

#include <string>

#include "lessons/assignments/left_schedule.hpp"

namespace lockstep::lessons {

/// Trains a small stack of layers in f64, one on each stage, by the student's schedule
/// and by the right one. Asks that both give the same gradients and weights, up to the
/// order of sums. Trains by SGD, on two pipelines, which divide each batch's
/// micro-batches and sum their gradients. Both schedules must be valid, have one chunk on
/// each stage, and update the weights after every `per_update` micro-batches. `rule` says
/// in sentences how the weights change. Schedules of more than 5 stages are not trained.
void ask_trained(Judge& judge, const LeftSchedules& made, int per_update,
                 const std::string& rule = "");

}  // namespace lockstep::lessons
