#include <string>
#include <vector>

#include "lessons/07_ring_self_attention/attention_problem.hpp"
#include "lessons/book/laboratory_runs.hpp"
#include "lessons/runner/lesson.hpp"
#include "src/core/units.hpp"
#include "src/device/token_rows.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kDevices[] = {2, 4, 8};
constexpr TokenOrder kOrders[] = {TokenOrder::contiguous, TokenOrder::striped,
                                  TokenOrder::zigzag};
constexpr ContextMethod kMethods[] = {ContextMethod::ring_attention,
                                      ContextMethod::gather, ContextMethod::ulysses};

/// Only a few tokens, so that each pair of them can be drawn.
AttentionProblem drawn_problem(bool causal) {
    AttentionProblem problem;
    problem.tokens = 32;
    problem.sizes = {/*heads=*/8, causal};
    problem.width = 64;
    problem.shapes_alone = true;
    return problem;
}

/// A speed of links.
struct LinkChoice {
    const char* name;
    double bytes_per_second;
};

// Attention of so few tokens takes little time, so these links are faster than any real
// links. With 4 devices, a hop over the fast link takes about half as long as attending
// to a block without mask; over the slow link, twice as long.
constexpr LinkChoice kLinks[] = {{"fast", 450e9}, {"slow", 112.5e9}};

/// Only arithmetic and messages take time, not launches and memory.
ClusterSpec spec_with(const LinkChoice& link) {
    ClusterSpec spec = load_cluster("classroom");
    spec.memory_bytes = 0;
    spec.memory_bytes_per_second = 0;
    spec.launch_seconds = 0;
    spec.inside = spec.between = {0, link.bytes_per_second};
    return spec;
}

struct AttentionSetting {
    int devices;
    ContextMethod method;
    bool causal;
    TokenOrder order;
    LinkChoice link;

    TokenRows tokens_of(int device) const {
        const std::int64_t share = drawn_problem(causal).tokens / devices;
        return TokenDeal{order, devices, device}.own(share);
    }
    /// Returns the number of pairs: queries of `device`, keys of `of_keys`, in one head.
    std::int64_t pairs(int device, int of_keys) const {
        const std::int64_t share = drawn_problem(causal).tokens / devices;
        return causal ? causal_pairs(tokens_of(device), share, tokens_of(of_keys), share)
                      : share * share;
    }
};

/// Returns a device's spans of one kind and, if given, of one name.
std::vector<TraceEvent> spans(const RunReport& report, int device,
                              const std::string& kind, const std::string& name = "") {
    std::vector<TraceEvent> found;
    for (const TraceEvent& event : report.trace)
        if (event.rank == device && event.kind == kind &&
            (name.empty() || event.name == name) && event.end > event.start)
            found.push_back(event);
    return found;
}

/// Returns [owner, pairs, start, end] of each block of keys and values that a ring brings
/// to a device, in order. If a block has no pairs, start and end are null.
Json ring_blocks(const AttentionSetting& setting, const RunReport& report, int device) {
    const std::vector<TraceEvent> attending =
        spans(report, device, "operation", "attend");
    auto next = attending.begin();
    Json blocks = Json::array();
    for (int hops = 0; hops < setting.devices; ++hops) {
        const int from = (device + setting.devices - hops) % setting.devices;
        const std::int64_t pairs = setting.pairs(device, from);
        if (pairs == 0 || next == attending.end()) {
            blocks.push_back({from, pairs, nullptr, nullptr});
            continue;
        }
        blocks.push_back({from, pairs, next->start, next->end});
        ++next;
    }
    return blocks;
}

/// Returns the same for a method that attends to all keys at once; the owner is -1. Pairs
/// are those of one head; a device of Ulysses computes all pairs, but for fewer heads.
Json one_block(const AttentionSetting& setting, const RunReport& report, int device) {
    std::int64_t pairs = 0;
    for (int query = 0; query < setting.devices; ++query)
        for (int key = 0; key < setting.devices; ++key)
            if (setting.method == ContextMethod::ulysses || query == device)
                pairs += setting.pairs(query, key);
    Json blocks = Json::array();
    for (const TraceEvent& event : spans(report, device, "operation", "attend"))
        blocks.push_back({-1, pairs, event.start, event.end});
    return blocks;
}

Json times_json(const std::vector<TraceEvent>& events) {
    Json times = Json::array();
    for (const TraceEvent& event : events)
        times.push_back({event.start, event.end});
    return times;
}

/// Returns a device's other operations, such as joining heads or taking means.
std::vector<TraceEvent> other_operations(const RunReport& report, int device) {
    std::vector<TraceEvent> found = spans(report, device, "operation");
    std::erase_if(found, [](const TraceEvent& event) { return event.name == "attend"; });
    return found;
}

Json device_json(const AttentionSetting& setting, const RunReport& report, int device) {
    const RankReport& rank = report.ranks[static_cast<std::size_t>(device)];
    return {{"blocks", setting.method == ContextMethod::ring_attention
                           ? ring_blocks(setting, report, device)
                           : one_block(setting, report, device)},
            {"others", times_json(other_operations(report, device))},
            {"messages", times_json(spans(report, device, "communication"))},
            {"compute", rank.time.compute},
            {"end", rank.time.end},
            {"bytes", rank.bytes_sent()},
            {"peak", rank.memory.peak}};
}

Json attention_run_json(const AttentionSetting& setting) {
    const RunReport report = run_method(
        *make_shapes_only_cluster(setting.devices, spec_with(setting.link),
                                  /*trace=*/true),
        drawn_problem(setting.causal), setting.method, setting.order, Passes::forward);
    Json devices = Json::array();
    for (int device = 0; device < setting.devices; ++device)
        devices.push_back(device_json(setting, report, device));
    return {{"devices", setting.devices},
            {"method", name_of(setting.method)},
            {"mask", setting.causal ? "causal" : "none"},
            {"order", name_of(setting.order)},
            {"links", setting.link.name},
            {"time", report.makespan()},
            {"ranks", std::move(devices)}};
}

/// Returns the tokens of each device, for each number of devices and each order.
Json deals_json() {
    Json deals = Json::array();
    for (const int devices : kDevices)
        for (const TokenOrder order : kOrders) {
            Json tokens = Json::array();
            for (int device = 0; device < devices; ++device) {
                const AttentionSetting setting{devices, kMethods[0], true, order,
                                               kLinks[0]};
                const TokenRows own = setting.tokens_of(device);
                Json of_device = Json::array();
                for (std::int64_t row = 0; row < own.share; ++row)
                    of_device.push_back(own[row]);
                tokens.push_back(std::move(of_device));
            }
            deals.push_back({{"devices", devices},
                             {"order", name_of(order)},
                             {"tokens", std::move(tokens)}});
        }
    return deals;
}

}  // namespace

Json attention_runs() {
    Json runs = Json::array();
    for (const int devices : kDevices)
        for (const ContextMethod method : kMethods)
            for (const bool causal : {false, true})
                for (const TokenOrder order : kOrders)
                    for (const LinkChoice& link : kLinks)
                        runs.push_back(
                            attention_run_json({devices, method, causal, order, link}));
    const AttentionProblem problem = drawn_problem(false);
    return {{"tokens", problem.tokens},
            {"heads", problem.sizes.heads},
            {"deals", deals_json()},
            {"runs", std::move(runs)}};
}

}  // namespace lockstep::lessons
