#pragma once

#include <string>

#include "src/run/diagnosis.hpp"

namespace lockstep {

/// The diagnosis as a JSON object: fault, title, sentence, cause, page, communicator
/// {name, ranks, sequence}, time_picoseconds, parties, others, details, waits. What there
/// is none of is null or an empty list.
std::string diagnosis_json(const Diagnosis& diagnosis);

}  // namespace lockstep
