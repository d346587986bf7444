#include "src/inference/service_report.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep {

namespace {

ServiceReport::Spread spread_of(std::vector<Picoseconds> times) {
    if (times.empty()) return {};
    std::ranges::sort(times);
    const auto at = [&](double part) {
        const double rank = std::ceil(part * static_cast<double>(times.size()));
        return times[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
    };
    return {at(0.5), at(0.9), at(0.99)};
}

}  // namespace

ServiceReport report_of(const std::vector<Served>& served, const ServiceLimits& limits) {
    ServiceReport report;
    std::vector<Picoseconds> to_first, per_token;
    Picoseconds begin = 0, end = 0;
    std::int64_t kept = 0;
    for (const Served& request : served) {
        begin = report.requests == 0 ? request.arrival : std::min(begin, request.arrival);
        end = std::max(end, request.last);
        ++report.requests;
        report.tokens += static_cast<std::int64_t>(request.answer.tokens.size());
        report.preemptions += request.answer.preemptions;
        report.reused += request.answer.reused;
        kept += limits.keeps(request);
        to_first.push_back(request.to_first());
        if (request.answer.tokens.size() > 1) per_token.push_back(request.per_token());
    }
    if (report.requests == 0) return report;
    report.seconds = static_cast<double>(end - begin) / static_cast<double>(kSecond);
    report.kept = static_cast<double>(kept) / static_cast<double>(report.requests);
    if (report.seconds > 0) report.goodput = static_cast<double>(kept) / report.seconds;
    report.to_first = spread_of(std::move(to_first));
    report.per_token = spread_of(std::move(per_token));
    return report;
}

}  // namespace lockstep
