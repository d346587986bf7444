#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lessons/tools/measurements.hpp"
#include "src/comm/rank.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::lessons {

/// What `lockstep calibrate` measures: bf16 products of square matrices from 64 to
/// `largest`, copies from 1 MiB to the size of such a matrix, and with several ranks
/// collectives from 1 KiB to that size. The times are not set.
std::vector<Measurement> planned_measurements(int ranks, std::int64_t largest);

/// A program that measures the plan. Every rank runs each measurement several times; the
/// fastest of three trials counts. Rank 0 records the times.
Program measuring(const std::vector<Measurement>& plan);

/// Returns the plan with the times that a run of `measuring` recorded.
std::vector<Measurement> measured(std::vector<Measurement> plan, const RunReport& report);

/// Returns measurements as a CSV file for read_measurements.
std::string measurements_csv(const std::vector<Measurement>& rows);

}  // namespace lockstep::lessons
