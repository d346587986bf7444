#pragma once

#include "adapters.hpp"

/// a11.1: trains the job's GPT on a mesh of those axes: the program of one device.
Trained train(lockstep::Rank& rank, const Job& job, const Axes& axes);

/// a11.2: the mesh on which a step of your train() is fastest, of those on which no
/// device holds more than it has.
Axes choose(const Setting& setting);
