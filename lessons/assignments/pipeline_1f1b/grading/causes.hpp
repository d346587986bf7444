#pragma once

#include <functional>
#include <string>

#include "src/pipeline/schedule.hpp"
#include "src/pipeline/times.hpp"

namespace lockstep::lessons {

// Why a schedule is not what was asked for, as far as it shows: a sentence for whoever
// wrote it, or nothing. Schedules have a chunk a stage and no messages.

/// The most micro-batches that a stage may hold.
using MostHeld = std::function<int(int stage)>;

/// It cannot run.
std::string cause_of_standstill(const Schedule& schedule);

/// It can run, and this stage holds more than it may.
std::string cause_of_holding(const Schedule& schedule, int stage, const MostHeld& most);

/// It can run, and takes longer than it must.
std::string cause_of_waiting(const Schedule& schedule, const Durations& each,
                             const MostHeld& most);

}  // namespace lockstep::lessons
