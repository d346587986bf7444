#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/chart/chart.hpp"
#include "src/inference/gpt_service.hpp"

namespace lockstep {

/// One replica of a service, and what it did, as a picture shows it.
struct ServiceTrace {
    struct Asked {
        std::int64_t id = 0;
        Picoseconds arrival = 0;
        std::int64_t prompt = 0;  ///< tokens
    };

    std::string title;  ///< empty is none
    int replica = 0;
    std::int64_t pages = 0;       ///< that a device has
    std::vector<Asked> requests;  ///< in the order of their arrivals
    /// The passes of one of its devices (GptService::passes), in their order. If prompts
    /// are computed apart, `prompts` has those of a device that computes them, and
    /// `passes` those of one that generates tokens.
    std::vector<ServedPass> passes;
    std::vector<ServedPass> prompts{};
};

/// The requests that are asked for, with the length of their prompts.
std::vector<ServiceTrace::Asked> asked_of(const std::vector<Request>& requests);

/// The service as a chart (src/chart/chart.hpp): a row of passes, or two if prompts are
/// computed apart; below it a row a request, with boxes for the time that it waits, for
/// the passes that compute its prompt, and for those that give it a token. Another panel
/// has the pages that sequences have over time. Of more than 24 requests the first ones
/// are drawn, until the last of these has its last token.
Chart service_chart(ServiceTrace trace);

}  // namespace lockstep
