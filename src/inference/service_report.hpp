#pragma once

#include <cstdint>
#include <vector>

#include "src/inference/server.hpp"

namespace lockstep {

/// The limits that users of a service ask for: its service-level objectives (SLO; Zhong
/// et al. 2024, DistServe, 2401.09670, section 2).
struct ServiceLimits {
    Picoseconds to_first = 0;  ///< 0: no limit
    Picoseconds per_token = 0;

    bool keeps(const Served& request) const {
        return (to_first == 0 || request.to_first() <= to_first) &&
               (per_token == 0 || request.per_token() <= per_token);
    }
};

/// Figures of a service, from all of its answers.
struct ServiceReport {
    std::int64_t requests = 0;
    std::int64_t tokens = 0;  ///< that were generated
    std::int64_t preemptions = 0;
    std::int64_t reused = 0;  ///< tokens of prompts that prefix caching found
    double seconds = 0;       ///< from the first arrival to the last token
    double kept = 0;          ///< the fraction of requests within the limits
    double goodput = 0;       ///< requests per second that are within the limits

    /// The 50th, 90th and 99th percentile, by the nearest-rank method.
    struct Spread {
        Picoseconds p50 = 0, p90 = 0, p99 = 0;
    };
    Spread to_first;
    Spread per_token;  ///< of requests with at least two tokens
};

ServiceReport report_of(const std::vector<Served>& served, const ServiceLimits& limits);

}  // namespace lockstep
