#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/chart/chart.hpp"
#include "src/inference/gpt_service.hpp"

namespace lockstep {

/// One replica of a service, with its requests and passes, for a picture.
struct ServiceTrace {
    struct Asked {
        std::int64_t id = 0;
        Picoseconds arrival = 0;
        std::int64_t prompt = 0;  ///< tokens
    };

    std::string title;  ///< empty is none
    int replica = 0;
    std::int64_t pages = 0;       ///< all pages of a device
    std::vector<Asked> requests;  ///< in the order of their arrivals
    /// The passes of one of its devices (GptService::passes), in their order. If other
    /// devices compute prompts, `prompts` has the passes of one of these devices, and
    /// `passes` has the passes of a device that generates tokens.
    std::vector<ServedPass> passes;
    std::vector<ServedPass> prompts{};
};

/// Returns the requests, with the lengths of their prompts.
std::vector<ServiceTrace::Asked> asked_of(const std::vector<Request>& requests);

/// Makes a chart of the service (src/chart/chart.hpp). It has one row of passes, or two
/// rows if other devices compute prompts. Below is a row for each request, with boxes for
/// the time that it waits, for the passes that compute its prompt, and for the passes
/// that give it a token. Another panel shows the pages that sequences have over time. If
/// there are more than 24 requests, only the first 24 are drawn, and the chart ends when
/// each of these has its last token.
Chart service_chart(ServiceTrace trace);

}  // namespace lockstep
