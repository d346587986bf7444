#pragma once

#include <string>

#include "lessons/page/document.hpp"
#include "lessons/tools/service_run.hpp"

namespace lockstep::lessons {

// Says about a service what `lockstep serve` shows.

/// The service, what a device holds, and what became of the requests: of one run in
/// tables of its own, of several with a line a rate.
Document service_page(const ExaminedService& service);

/// All of it as one JSON document; `passes`: with each pass of each replica.
std::string service_json(const ExaminedService& service, bool passes = false);

/// The requests of a replica, drawn.
Chart service_chart_of(const ExaminedService& service, int replica);

}  // namespace lockstep::lessons
