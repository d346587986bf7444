#pragma once

#include <filesystem>
#include <string>

#include "src/run/diagnosis.hpp"

namespace lockstep {

/// Returns the diagnosis as a JSON object: fault, title, sentence, cause, page,
/// communicator {name, ranks, sequence}, time_picoseconds, parties, others, details,
/// waits. A missing value is null or an empty list.
std::string diagnosis_json(const Diagnosis& diagnosis);

/// Writes what is known of a stopped run to `folder`: diagnosis.txt, diagnosis.json,
/// wait_for_graph.svg if ranks waited, and trace.json and timeline.svg up to the stop if
/// the run was traced. Makes the folder if it does not exist. Files of these names are
/// replaced, or removed if this run has none; other files stay. Throws std::system_error
/// if a file cannot be written.
void write_diagnosis(const std::filesystem::path& folder, const FaultError& fault);

/// Writes only diagnosis.txt, diagnosis.json and, if ranks waited, wait_for_graph.svg.
/// `report` may be null; otherwise the picture also shows its trace, if it has one.
void write_diagnosis_files(const std::filesystem::path& folder,
                           const Diagnosis& diagnosis, const RunReport* report);

}  // namespace lockstep
