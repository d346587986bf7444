#pragma once

#include <string>

#include "src/run/run_report.hpp"

namespace lockstep {

/// A run's report as bytes for another process, tensors and trace and all; read_report
/// gives it back as it was. Throws UsageError if `bytes` are none of a report's.
std::string report_bytes(const RunReport& report);
RunReport read_report(const std::string& bytes);

}  // namespace lockstep
