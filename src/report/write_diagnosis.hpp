#pragma once

#include <filesystem>
#include <string>

#include "src/run/diagnosis.hpp"

namespace lockstep {

/// Returns the diagnosis as a JSON object: fault, title, sentence, cause, page,
/// communicator {name, ranks, sequence}, time_picoseconds, parties, others, details,
/// waits. A thing that it lacks is null or an empty list.
std::string diagnosis_json(const Diagnosis& diagnosis);

/// Leaves what a stopped run can say in `folder`, which is made if it is not there:
/// diagnosis.txt, diagnosis.json, if ranks waited wait_for_graph.svg, and if the run was
/// traced trace.json and timeline.svg up to the stop. Files of these names are replaced,
/// or removed if this run has none; other files stay. Throws std::system_error if a file
/// cannot be written.
void write_diagnosis(const std::filesystem::path& folder, const FaultError& fault);

/// Leaves the first three alone. `report` may be null; its trace goes into the picture.
void write_diagnosis_files(const std::filesystem::path& folder,
                           const Diagnosis& diagnosis, const RunReport* report);

}  // namespace lockstep
