#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/comm/rank.hpp"

// Data for the six programs. run.cpp and test.cpp use them.

constexpr int kRanks = 4;

struct ProgramCase {
    std::string name;  ///< the program's name, as in answers.json
    /// Calls the program, and keeps its results.
    lockstep::Program program;
    /// The tensors that each rank should have in the end, by name.
    std::vector<std::map<std::string, lockstep::HostTensor>> expected;
};

/// A program that can be run at any size.
struct ProgramData {
    std::string name;
    std::string counted;  ///< what `size` counts: "micro-batches"
    int size;             ///< the size that run.cpp and test.cpp use by default
    ProgramCase (*made)(int ranks, int size);
};

/// Returns all six programs.
const std::vector<ProgramData>& program_data();
