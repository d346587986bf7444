#pragma once

#include <string>

#include "lessons/page/document.hpp"
#include "lessons/tools/service_run.hpp"

namespace lockstep::lessons {

// The output of `lockstep serve`.

/// Shows the service, what a device holds, and the results of the requests: for one run
/// in several tables, for several runs with one line per rate.
Document service_page(const ExaminedService& service);

/// Returns the same as one JSON document; with `passes`, also each pass of each replica.
std::string service_json(const ExaminedService& service, bool passes = false);

/// Returns a picture of a replica's requests.
Chart service_chart_of(const ExaminedService& service, int replica);

}  // namespace lockstep::lessons
