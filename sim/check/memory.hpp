#pragma once

#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

class Engine;

/// Where a device is full (F30): what those of the other ranks hold, as often one is full
/// alone.
void add_memory_of_others(const Engine& engine, Diagnosis& diagnosis);

}  // namespace lockstep::sim
