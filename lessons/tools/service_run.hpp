#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lessons/tools/service_file.hpp"
#include "src/inference/service_picture.hpp"

namespace lockstep::lessons {

/// A device of a service has this before the first request comes; of several, the one
/// that has most.
struct ServiceHolding {
    std::int64_t memory_bytes = 0;  ///< 0: as much as one likes
    std::int64_t weight_bytes = 0;
    std::int64_t page_bytes = 0;  ///< of all layers that are on it
    std::int64_t pages = 0;
    bool all_that_fit = false;  ///< nobody has said how many pages
    Picoseconds ready = 0;      ///< when the weights are there, and requests may come

    std::int64_t cache_bytes() const { return pages * page_bytes; }
};

/// Makes the model's parts on devices without numbers, and looks. Throws UsageError if
/// nothing says how many pages there are, and if they do not fit beside the weights.
ServiceHolding holding_of(const ServiceSettings& settings);

/// Says what became of the requests of a service.
struct ServiceOutcome {
    std::optional<double> per_second;  ///< the rate of a mix
    ServiceReport report;
    /// A request, whose it was, and what became of it.
    struct Ended {
        std::int64_t prompt = 0;
        std::int64_t replica = 0;
        Served served;
    };
    std::vector<Ended> requests;  ///< by id
    /// Each replica has done this.
    std::vector<ServiceTrace> replicas;

    /// Passes, and their rows.
    struct Work {
        std::int64_t passes = 0;
        std::int64_t rows = 0;
        double rows_of_pass() const {
            return passes == 0 ? 0
                               : static_cast<double>(rows) / static_cast<double>(passes);
        }
    };
    Work prompts;                  ///< of devices that compute prompts apart
    Work passes;                   ///< of the others
    std::int64_t peak_bytes = 0;   ///< the most that a device has held
    std::int64_t moved_bytes = 0;  ///< from devices that compute prompts to others
};

/// Runs the service, with another rate than its mix has if one is given.
ServiceOutcome served(const ServiceSettings& settings, const ServiceHolding& holding,
                      std::optional<double> per_second = {});

/// A service, and what became of its requests at each rate.
struct ExaminedService {
    ServiceSettings settings;
    ServiceHolding holding;
    std::vector<ServiceOutcome> outcomes;  ///< one, unless there are several rates
};

}  // namespace lockstep::lessons
