#include "lessons/tools/cluster_page.hpp"

#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/tools/cluster_file.hpp"
#include "sim/cluster.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"
#include "src/text/json.hpp"
#include "src/text/numbers.hpp"
#include "src/text/table.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

constexpr Verb kTimedVerbs[] = {Verb::all_reduce, Verb::all_gather, Verb::reduce_scatter,
                                Verb::all_to_all, Verb::broadcast};
constexpr std::int64_t kLeastTimedBytes = 1 << 10;
constexpr std::int64_t kMostTimedBytes = std::int64_t{8} << 30;

TimedGroup timed_group(const ClusterSpec& spec, int ranks) {
    TimedGroup group{ranks, spec.node_of(ranks - 1) + 1, {}};
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    for (const Verb verb : kTimedVerbs) {
        TimedVerb& timed = group.verbs.emplace_back(TimedVerb{verb, {}});
        for (std::int64_t bytes = kLeastTimedBytes; bytes <= kMostTimedBytes;
             bytes *= 2) {
            const CollectiveCall call = call_of_size(verb, bytes, ranks);
            const Picoseconds time = collective_time(call, spec, members);
            const double rate =
                static_cast<double>(bytes) * bus_factor(verb, ranks) / seconds(time);
            timed.sizes.push_back({bytes, time, time == 0 ? 0 : rate,
                                   fastest_algorithm(call, spec, members)});
        }
    }
    return group;
}

}  // namespace

ExaminedCluster examined_cluster(ClusterSpec spec, std::optional<int> ranks) {
    ExaminedCluster cluster{std::move(spec), {}};
    const int node = cluster.spec.devices_per_node;
    for (const int count :
         ranks ? std::vector<int>{*ranks} : std::vector<int>{node, 2 * node})
        if (count > 1 && count <= sim::ClusterOptions::kMaxRanks)
            cluster.groups.push_back(timed_group(cluster.spec, count));
    return cluster;
}

namespace {

/// Returns "989.4 TFLOP/s", "50 GB/s", or "no limit" for 0.
std::string rate_text(double per_second, double scale, const char* unit) {
    return per_second == 0 ? "no limit"
                           : fmt::format("{} {}", number_text(per_second / scale), unit);
}
std::string flops_text(double flops) {
    return rate_text(flops, 1e12, "TFLOP/s");
}
std::string speed_text(double bytes_per_second) {
    return rate_text(bytes_per_second, 1e9, "GB/s");
}
std::string duration_text(double seconds) {
    return time_text(picoseconds(seconds));
}

/// Returns "30 % at 96, 58 % at 768", or "100 %" for a curve without points.
std::string curve_text(const Curve& curve, std::string (*size_text)(std::int64_t)) {
    std::vector<std::string> points;
    for (const Curve::Point& point : curve.points)
        points.push_back(fmt::format("{} % at {}", number_text(100 * point.part),
                                     size_text(static_cast<std::int64_t>(point.size))));
    return points.empty() ? "100 %" : fmt::format("{}", fmt::join(points, ", "));
}

Table device_table(const ClusterSpec& spec) {
    Table table{{"of a device", "data sheet", "reached"}, {}};
    const std::string products = curve_text(spec.product_efficiency, count_text);
    for (const auto& [name, flops] : {std::pair{"bf16", spec.flops_bf16},
                                      {"f32", spec.flops_f32},
                                      {"f64", spec.flops_f64}})
        table.rows.push_back({name, flops_text(flops), products});
    table.rows.push_back(
        {"memory", speed_text(spec.memory_bytes_per_second),
         fmt::format("{} %", number_text(100 * spec.memory_efficiency))});
    table.rows.push_back(
        {"its size", spec.memory_bytes == 0 ? "no limit" : bytes_text(spec.memory_bytes),
         "–"});
    table.rows.push_back(
        {"launch of an operation", duration_text(spec.launch_seconds), "–"});
    return table;
}

Table link_table(const ClusterSpec& spec) {
    const int node = spec.devices_per_node;
    Table table{{"link", "on a node", "a message's latency", "rate", "reached"}, {}};
    const auto add = [&](const char* name, int count, const LinkSpec& link) {
        table.rows.push_back(
            {name, std::to_string(count), duration_text(link.alpha_seconds),
             speed_text(link.bytes_per_second), curve_text(link.efficiency, bytes_text)});
    };
    add("inside a node", node, spec.inside);
    add("between nodes", spec.network_ports > 0 ? spec.network_ports : node,
        spec.between);
    if (spec.nodes_per_switch > 0) {
        LinkSpec crossing = spec.between;
        crossing.bytes_per_second /= spec.oversubscription;
        add("between switches", spec.nodes_per_switch * node, crossing);
    }
    add("host", spec.host_links > 0 ? spec.host_links : node, spec.host_copy);
    return table;
}

Table algorithm_table(const ClusterSpec& spec) {
    Table table{{"algorithm", "kind", "begins", "a step in a node", "rate",
                 "a step between", "rate between"},
                {}};
    for (const CollectiveAlgorithm& each : spec.algorithms)
        table.rows.push_back(
            {printable(each.name),
             CollectiveAlgorithm::kKinds[static_cast<std::size_t>(each.kind)],
             duration_text(each.base_seconds), duration_text(each.inside_seconds),
             speed_text(spec.inside.bytes_per_second * each.inside_efficiency),
             duration_text(each.between_seconds),
             speed_text(spec.between.bytes_per_second * each.between_efficiency)});
    return table;
}

std::string gigabytes(const TimedCollective& timed) {
    return timed.time == 0 ? "–" : fmt::format("{:.1f}", timed.bus_bandwidth / 1e9);
}

/// Shows every second size; the JSON document has all.
Table bandwidth_table(const TimedGroup& group) {
    constexpr std::size_t kStep = 2;
    const std::vector<TimedCollective>& sizes = group.verbs.front().sizes;
    Table table{{"bytes"}, {}};
    for (const TimedVerb& verb : group.verbs)
        table.head.emplace_back(name_of(verb.verb));
    for (std::size_t i = 0; i < sizes.size(); i += kStep) {
        std::vector<std::string> row{bytes_text(sizes[i].bytes)};
        for (const TimedVerb& verb : group.verbs)
            row.push_back(gigabytes(verb.sizes[i]));
        table.rows.push_back(std::move(row));
    }
    return table;
}

/// Returns "An all_reduce of 1 KiB takes 15 us. Its algorithm is ring LL, from …".
std::string all_reduce_sentence(const TimedGroup& group) {
    const std::vector<TimedCollective>& sizes = group.verbs.front().sizes;
    std::string text =
        fmt::format("An all_reduce of {} takes {}.", bytes_text(sizes.front().bytes),
                    time_text(sizes.front().time));
    std::string last;
    for (const TimedCollective& timed : sizes) {
        if (timed.algorithm == last) continue;
        text += last.empty() ? " Its algorithm is "
                             : fmt::format(", from {} on ", bytes_text(timed.bytes));
        text += printable(timed.algorithm);
        last = timed.algorithm;
    }
    return last.empty() ? text : text + ".";
}

std::string group_text(const TimedGroup& group) {
    return fmt::format(
        "{} devices on {}", group.ranks,
        group.nodes == 1 ? "one node" : fmt::format("{} nodes", group.nodes));
}

bool takes_time(const TimedGroup& group) {
    return group.verbs.front().sizes.back().time > 0;
}

}  // namespace

Document cluster_page(const ExaminedCluster& cluster) {
    const ClusterSpec& spec = cluster.spec;
    Document page;
    const auto title = [&](const std::string& text) {
        page.push_back({Heading{2, words_of(text)}});
    };
    const auto say = [&](const std::string& sentence) {
        page.push_back({Paragraph{words_of(sentence)}});
    };
    title(printable(spec.name));
    if (!spec.source.empty()) say("Source: " + printable(spec.source) + ".");
    if (spec.error) say(accuracy_text(spec));
    page.push_back({table_of(device_table(spec))});
    page.push_back({table_of(link_table(spec))});
    if (!spec.product_efficiency.points.empty())
        say("What a product reaches depends on the least extent of its matrices.");
    if (!spec.algorithms.empty()) {
        page.push_back({table_of(algorithm_table(spec))});
        say("A collective takes the fastest algorithm that has its verb.");
    }
    if (cluster.groups.empty())
        say(
            fmt::format("Collectives of {} devices are not shown; --ranks N shows those "
                        "of N.",
                        spec.devices_per_node));
    for (const TimedGroup& group : cluster.groups) {
        if (!takes_time(group)) {
            say(fmt::format("Collectives of {} take no time.", group_text(group)));
            continue;
        }
        title("Bus bandwidth in GB/s, as nccl-tests prints it: " + group_text(group));
        page.push_back({table_of(bandwidth_table(group))});
        say(all_reduce_sentence(group));
    }
    return page;
}

std::vector<Plot> bandwidth_plots(const ExaminedCluster& cluster) {
    std::vector<Plot> plots;
    for (const TimedGroup& group : cluster.groups) {
        if (!takes_time(group)) continue;
        Plot& plot = plots.emplace_back(
            Plot{fmt::format("{}: bus bandwidth, {}", printable(cluster.spec.name),
                             group_text(group)),
                 "GB/s",
                 {}});
        for (const TimedVerb& verb : group.verbs) {
            Plot::Curve& curve = plot.curves.emplace_back(
                Plot::Curve{std::string(name_of(verb.verb)), {}});
            for (const TimedCollective& timed : verb.sizes)
                curve.points.emplace_back(static_cast<double>(timed.bytes),
                                          timed.bus_bandwidth / 1e9);
        }
    }
    return plots;
}

std::string cluster_json(const ExaminedCluster& cluster) {
    const ClusterSpec& spec = cluster.spec;
    Json groups = Json::array();
    for (const TimedGroup& group : cluster.groups) {
        Json verbs = Json::object();
        for (const TimedVerb& verb : group.verbs) {
            Json sizes = Json::array();
            for (const TimedCollective& timed : verb.sizes)
                sizes.push_back({{"bytes", timed.bytes},
                                 {"seconds", seconds(timed.time)},
                                 {"bus_bytes_per_second", timed.bus_bandwidth},
                                 {"algorithm", timed.algorithm}});
            verbs[std::string(name_of(verb.verb))] = std::move(sizes);
        }
        groups.push_back({{"ranks", group.ranks},
                          {"nodes", group.nodes},
                          {"collectives", std::move(verbs)}});
    }
    Json document{{"name", spec.name},
                  {"source", spec.source},
                  {"devices_per_node", spec.devices_per_node},
                  {"groups", std::move(groups)}};
    if (spec.error) document["error"] = error_json(*spec.error);
    return document.dump() + "\n";
}

}  // namespace lockstep::lessons
