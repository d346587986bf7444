#include "lessons/01_gradient_accumulation/cost_step.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"

namespace lockstep::lessons {

namespace {

const RankReport& busiest(const RunReport& report) {
    return *std::max_element(report.ranks.begin(), report.ranks.end(),
                             [](const RankReport& a, const RankReport& b) {
                                 return a.memory.peak < b.memory.peak;
                             });
}

/// The gradients' all-reduces, one a parameter.
std::vector<CollectiveCall> gradient_reductions(const RunReport& report) {
    std::vector<CollectiveCall> calls;
    for (const auto& [name, tensor] : report.ranks.front().kept)
        if (name.starts_with("grad/"))
            calls.push_back({Verb::all_reduce, tensor.elements(),
                             bytes_of(tensor.dtype()),
                             static_cast<int>(report.ranks.size())});
    return calls;
}

}  // namespace

std::string link_text(const LinkSpec& link) {
    const std::string rate =
        link.bytes_per_second > 0
            ? fmt::format("{:.4g} GB/s", link.bytes_per_second / 1e9)
            : "unlimited";
    return fmt::format("alpha {}, beta {}",
                       time_text(picoseconds(link.alpha_seconds)), rate);
}

Table cost_table(
    const std::vector<std::pair<std::string, const RunReport*>>& runs) {
    Table table{{"of one device", "time", "parameters", "gradients",
                 "optimizer", "activations", "sent"},
                {}};
    for (const auto& [name, report] : runs) {
        const RankReport& rank = busiest(*report);
        const auto peak = [&](MemoryCategory category) {
            return bytes_text(
                rank.memory
                    .category_peak[static_cast<std::size_t>(category)]);
        };
        table.rows.push_back({name, time_text(report->makespan()),
                              peak(MemoryCategory::parameters),
                              peak(MemoryCategory::gradients),
                              peak(MemoryCategory::optimizer),
                              peak(MemoryCategory::activations),
                              bytes_text(rank.bytes_sent())});
    }
    return table;
}

void show_gradient_bytes(Page& page, const RunReport& report,
                         const LessonOptions& options) {
    const std::vector<CollectiveCall> calls = gradient_reductions(report);
    const int n = static_cast<int>(report.ranks.size());
    std::vector<int> members(static_cast<std::size_t>(n));
    std::iota(members.begin(), members.end(), 0);
    const ClusterSpec spec = load_cluster(options.cluster);
    const bool spaced =
        n > spec.devices_per_node;  // its ring crosses nodes
    std::int64_t elements = 0;
    std::int64_t bytes = 0;
    Picoseconds time = 0;
    for (const CollectiveCall& call : calls) {
        elements += call.count;
        bytes += collective_traffic(call, 0).bytes_sent;
        time += collective_time(call, spec, members);
    }
    const std::int64_t size = bytes_of(options.dtype);
    page.predict(fmt::format("The model has {} parameters of {} bytes. How "
                             "many bytes does a device send "
                             "in one step over {} devices?",
                             count_text(elements), size, n),
                 std::round(2.0 * (n - 1) / n *
                            static_cast<double>(elements * size)),
                 "bytes",
                 fmt::format("2(n-1)/n * S = 2 * {}/{} * {} * {}", n - 1, n,
                             elements, size));
    const RankReport& first = report.ranks.front();
    page.check(Check::equal(
        "bytes that device 0 sent against the formula, chunk by chunk",
        static_cast<double>(first.bytes_sent()),
        static_cast<double>(bytes)));
    page.predict(
        fmt::format(
            "And how long do its {} all-reduces take, in microseconds?",
            calls.size()),
        static_cast<double>(time) / 1e6, "us",
        fmt::format("the sum over parameters of 2(n-1) * (alpha + chunk / "
                    "beta), {} {}",
                    link_text(spaced ? spec.between : spec.inside),
                    spaced ? "between nodes" : "inside a node"));
    page.check(
        Check::equal("picoseconds of communication against the formula",
                     static_cast<double>(first.time.communication),
                     static_cast<double>(time)));
}

}  // namespace lockstep::lessons
