#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/comm/rank.hpp"

// Data for the six programs: for run.cpp and test.cpp.

constexpr int kRanks = 4;

struct ProgramCase {
    std::string name;  ///< of the program, as in answers.json
    /// Calls it, and keeps what it left.
    lockstep::Program program;
    /// Each rank should have left this, by name.
    std::vector<std::map<std::string, lockstep::HostTensor>> expected;
};

/// A program that can be run at any size.
struct ProgramData {
    std::string name;
    std::string counted;  ///< what its size is the number of: "micro-batches"
    int size;             ///< if nobody says another
    ProgramCase (*made)(int ranks, int size);
};

/// All six.
const std::vector<ProgramData>& program_data();
