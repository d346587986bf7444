#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/cluster.hpp"

namespace lockstep::test {

/// A line of a program that a diagnosis must name.
struct Mark {
    std::string name;
    std::string place;  ///< "tests/faults/F16_….cpp:31"
};

/// A program of the corpus, in its mistaken form and as its correct twin, which differs
/// in one line. make_corpus.py generates these objects from the files.
struct FaultProgram {
    std::string name;  ///< "F16_data_parallel_step"
    std::string fault;
    sim::CheckLevel check = sim::CheckLevel::cheap;  ///< the check that finds the mistake
    std::vector<int> ranks;                          ///< numbers of ranks for runs
    /// The ranks of the diagnosis' parties, in any order: "2 | rest", "all", "0 1".
    std::string parties;
    std::int64_t memory_bytes = 0;  ///< of a device; 0: the cluster's default
    std::string says;               ///< words that the diagnosis must have
    std::vector<Mark> marks;
    Program mistaken;
    Program twin;
    /// The same program for one device; null unless only a comparison with one device
    /// shows the mistake.
    Program reference;
};

/// All programs of this folder.
std::vector<FaultProgram> fault_corpus();

}  // namespace lockstep::test
