#include "src/run/run_report.hpp"

#include <algorithm>

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

}  // namespace lockstep
