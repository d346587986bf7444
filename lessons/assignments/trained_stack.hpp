#pragma once

#include <string>

#include "lessons/assignments/left_schedule.hpp"

namespace lockstep::lessons {

/// Trains a small stack of layers in f64, one layer on each stage, with the student's
/// schedule and with the reference's. Judges whether gradients and weights are the same,
/// up to the order of sums. Trains with SGD, on two pipelines, which have different
/// micro-batches and sum their gradients. Both schedules must be valid, have one chunk on
/// each stage, and update the weights after every `per_update` micro-batches. `rule` is a
/// text about how the weights change. Schedules of more than 5 stages are not trained.
void ask_trained(Judge& judge, const LeftSchedules& made, int per_update,
                 const std::string& rule = "");

}  // namespace lockstep::lessons
