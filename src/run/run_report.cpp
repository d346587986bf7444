#include "src/run/run_report.hpp"

#include <algorithm>

#include "src/core/require.hpp"
#include "src/core/wire.hpp"

namespace lockstep {

std::int64_t RankReport::bytes_sent() const {
    std::int64_t bytes = 0;
    for (const Traffic& part : traffic)
        bytes += part.bytes_sent;
    return bytes;
}

std::int64_t RankReport::messages_sent() const {
    std::int64_t messages = 0;
    for (const Traffic& part : traffic)
        messages += part.messages_sent;
    return messages;
}

Picoseconds RunReport::makespan() const {
    Picoseconds latest = 0;
    for (const RankReport& rank : ranks)
        latest = std::max(latest, rank.time.end);
    return latest;
}

std::int64_t RunReport::bytes_sent() const {
    std::int64_t bytes = 0;
    for (const RankReport& rank : ranks)
        bytes += rank.bytes_sent();
    return bytes;
}

std::int64_t RunReport::messages_sent() const {
    std::int64_t messages = 0;
    for (const RankReport& rank : ranks)
        messages += rank.messages_sent();
    return messages;
}

std::int64_t RunReport::most_held() const {
    std::int64_t most = 0;
    for (const RankReport& rank : ranks)
        most = std::max(most, rank.memory.peak);
    return most;
}

std::string report_bytes(const RunReport& report) {
    WireWriter out;
    out(report);
    return std::move(out.bytes());
}

RunReport read_report(const std::string& bytes) {
    try {
        WireReader in(bytes);
        RunReport report = in.get<RunReport>();
        in.end();
        return report;
    } catch (const WireError&) {
        throw UsageError("these bytes are no run's report");
    }
}

}  // namespace lockstep
