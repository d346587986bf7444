#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/comm/rank.hpp"

// Data for the six programs, on four ranks: for run.cpp and test.cpp.

constexpr int kRanks = 4;

struct ProgramCase {
    std::string name;  ///< of the program, as in answers.json
    /// Calls it, and keeps what it left.
    lockstep::Program program;
    /// What each rank should have left, by name.
    std::vector<std::map<std::string, lockstep::HostTensor>> expected;
};

/// All six.
std::vector<ProgramCase> program_cases();
