#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lessons/tools/service_file.hpp"
#include "src/inference/service_picture.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::lessons {

/// The memory of a service's device, and what it holds before the first request. Each
/// value is the maximum over the devices.
struct ServiceHolding {
    std::int64_t memory_bytes = 0;  ///< 0: unlimited
    std::int64_t weight_bytes = 0;
    std::int64_t page_bytes = 0;  ///< of one page, for all layers on the device
    std::int64_t pages = 0;
    bool all_that_fit = false;  ///< the number of pages was not given
    Picoseconds ready = 0;      ///< when the weights are ready and requests may come

    std::int64_t cache_bytes() const { return pages * page_bytes; }
};

/// Measures the model's parts on devices that compute only shapes. Throws UsageError if
/// the number of pages is not known, or if the pages do not fit next to the weights.
ServiceHolding holding_of(const ServiceSettings& settings);

/// The results of a service's requests.
struct ServiceOutcome {
    std::optional<double> per_second;  ///< the rate of a mix
    ServiceReport report;
    /// A request with its replica and its result.
    struct Ended {
        std::int64_t prompt = 0;
        std::int64_t replica = 0;
        Served served;
    };
    std::vector<Ended> requests;  ///< by id
    /// The work that each replica has done.
    std::vector<ServiceTrace> replicas;

    /// A number of passes, and their rows.
    struct Work {
        std::int64_t passes = 0;
        std::int64_t rows = 0;
        double rows_of_pass() const {
            return passes == 0 ? 0
                               : static_cast<double>(rows) / static_cast<double>(passes);
        }
    };
    Work prompts;  ///< of devices that only compute prompts
    Work passes;   ///< of the other devices
    /// The least time that the requests need on these devices, whatever the batch rules.
    /// For memory, each pass generates tokens for as many sequences as the pages hold,
    /// and reads the weights that a token uses once; each token reads its keys and
    /// values.
    Roof roof;
    std::int64_t fewest_passes = 0;  ///< of which `roof.memory` is made
    Picoseconds last_arrival = 0;    ///< after the first
    std::int64_t peak_bytes = 0;     ///< the maximum over all devices
    std::int64_t moved_bytes = 0;    ///< from devices that compute prompts to the others
};

/// Runs the service; a given rate replaces the mix's rate.
ServiceOutcome served(const ServiceSettings& settings, const ServiceHolding& holding,
                      std::optional<double> per_second = {});

/// A service, and the results of its requests at each rate.
struct ExaminedService {
    ServiceSettings settings;
    ServiceHolding holding;
    std::vector<ServiceOutcome> outcomes;  ///< one per rate
};

}  // namespace lockstep::lessons
