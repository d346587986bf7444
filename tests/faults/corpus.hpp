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

/// A program of the corpus: its header, its mistaken form and its twin, which differs in
/// one line and is correct. make_corpus.py writes these from the files.
struct FaultProgram {
    std::string name;  ///< "F16_data_parallel_step"
    std::string fault;
    sim::CheckLevel check = sim::CheckLevel::cheap;  ///< the check that finds it
    std::vector<int> ranks;                          ///< numbers of ranks to run it on
    /// Ranks of the diagnosis' parties: "2 | rest", "all", "0 1"; in any order.
    std::string parties;
    std::int64_t memory_bytes = 0;  ///< of a device; 0: as the cluster says
    std::string says;               ///< words of the diagnosis' sentence
    std::vector<Mark> marks;
    Program mistaken;
    Program twin;
    /// The same data on one device, for a mistake that shows only in comparison with one
    /// device.
    Program reference;
};

/// All programs of this folder.
std::vector<FaultProgram> fault_corpus();

}  // namespace lockstep::test
