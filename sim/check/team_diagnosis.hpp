#pragma once

#include "sim/team.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::sim {

/// The start of a diagnosis of the class: on which communicator.
inline Diagnosis diagnosis_on(const Team& team, const std::string& fault) {
    Diagnosis diagnosis = diagnosis_of(fault);
    diagnosis.communicator = team.name;
    diagnosis.members = team.ranks;
    return diagnosis;
}

/// And which of its collectives.
inline Diagnosis diagnosis_on(const Team& team, std::uint64_t sequence,
                              const std::string& fault) {
    Diagnosis diagnosis = diagnosis_on(team, fault);
    diagnosis.sequence = static_cast<std::int64_t>(sequence);
    return diagnosis;
}

}  // namespace lockstep::sim
