#pragma once

#include <filesystem>

#include "src/run/diagnosis.hpp"

namespace lockstep {

/// Leaves what a stopped run can say in `folder`, which is made if it is not there:
/// diagnosis.txt, diagnosis.json, where ranks waited wait_for_graph.svg, and if the run
/// was traced trace.json and timeline.svg up to the stop. Files of these names are
/// replaced, or removed where this run has none; other files stay. Throws
/// std::system_error if a file cannot be written.
void write_diagnosis(const std::filesystem::path& folder, const FaultError& fault);

/// The first three alone. `report` may be null; its trace goes into the picture.
void write_diagnosis_files(const std::filesystem::path& folder,
                           const Diagnosis& diagnosis, const RunReport* report);

}  // namespace lockstep
