#pragma once

#include "adapters.hpp"

/// a11.1. Trains the job's GPT on a mesh with these axes, as one device of it.
Trained train(lockstep::Rank& rank, const Job& job, const Axes& axes);

/// a11.2. Returns the mesh on which a step of your train() is fastest. No device may hold
/// more than its memory.
Axes choose(const Setting& setting);
