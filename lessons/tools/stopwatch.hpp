#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "lessons/tools/measurements.hpp"
#include "src/comm/rank.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::lessons {

/// A measurement that `lockstep calibrate` makes itself.
using Measurable = std::variant<MeasuredCollective, MeasuredProduct, MeasuredTraffic>;

/// Returns bf16 products of square matrices from 64 to `largest`, copies from 1 MiB to
/// the size of such a matrix, and with several ranks collectives from 1 KiB to that size.
std::vector<Measurable> planned_measurements(int ranks, std::int64_t largest);

/// A program that measures the plan. Every rank runs each measurement several times; the
/// fastest of three trials counts. Rank 0 records the times.
Program measuring(const std::vector<Measurable>& plan);

/// Returns the plan with the times that a run of `measuring` recorded.
std::vector<Measurement> measured(const std::vector<Measurable>& plan,
                                  const RunReport& report);

/// Returns the same as a CSV file for read_measurements.
std::string measured_csv(const std::vector<Measurable>& plan, const RunReport& report);

}  // namespace lockstep::lessons
