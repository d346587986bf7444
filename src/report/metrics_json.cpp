#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "src/report/json_text.hpp"
#include "src/report/record.hpp"

namespace lockstep {

using Json = nlohmann::ordered_json;

namespace {

Json time_json(const TimeReport& time) {
    return {{"compute", time.compute},
            {"communication", time.communication},
            {"copy", time.copy},
            {"waiting", time.waiting},
            {"end", time.end}};
}

Json categories_json(const std::array<std::int64_t, kMemoryCategories>& bytes) {
    Json json = Json::object();
    for (int c = 0; c < kMemoryCategories; ++c)
        json[name_of(static_cast<MemoryCategory>(c))] = bytes[c];
    return json;
}

Json memory_json(const MemoryReport& memory) {
    return {{"peak", memory.peak},
            {"at_peak", categories_json(memory.at_peak)},
            {"category_peak", categories_json(memory.category_peak)},
            {"at_end", categories_json(memory.current)}};
}

Json traffic_json(std::vector<Traffic> traffic) {
    std::ranges::stable_sort(traffic, {}, [](const Traffic& part) {
        return std::tie(part.group, part.verb, part.between_nodes);
    });
    Json json = Json::array();
    for (const Traffic& part : traffic) {
        json.push_back({{"group", part.group},
                        {"verb", part.verb},
                        {"link", part.between_nodes ? "between nodes" : "inside node"},
                        {"calls", part.calls},
                        {"messages_sent", part.messages_sent},
                        {"bytes_sent", part.bytes_sent},
                        {"messages_received", part.messages_received},
                        {"bytes_received", part.bytes_received}});
    }
    return json;
}

Json figure_json(double value) {
    return Json::parse(json_number(value));
}

Json series_json(const std::map<std::string, std::vector<double>>& series) {
    Json json = Json::object();
    for (const auto& [name, values] : series) {
        Json list = Json::array();
        for (const double value : values)
            list.push_back(figure_json(value));
        json[name] = std::move(list);
    }
    return json;
}

Json run_json(const std::string& name, const RunReport& report) {
    Json ranks = Json::array();
    for (std::size_t r = 0; r < report.ranks.size(); ++r) {
        const RankReport& rank = report.ranks[r];
        ranks.push_back({{"rank", r},
                         {"time_picoseconds", time_json(rank.time)},
                         {"flops", rank.flops},
                         {"memory_bytes", memory_json(rank.memory)},
                         {"traffic", traffic_json(rank.traffic)},
                         {"series", series_json(rank.series)}});
    }
    return {{"name", name},
            {"makespan_picoseconds", report.makespan()},
            {"bytes_sent", report.bytes_sent()},
            {"messages_sent", report.messages_sent()},
            {"ranks", std::move(ranks)}};
}

Json check_json(const Check& check) {
    return {{"name", check.name},
            {"figure", figure_json(check.figure)},
            {"relation", check.equality ? "equal" : "at most"},
            {"bound", figure_json(check.bound)},
            {"passed", check.passed}};
}

}  // namespace

std::string metrics_json(const Record& record) {
    Json checks = Json::array();
    for (const Check& check : record.checks)
        checks.push_back(check_json(check));
    Json runs = Json::array();
    for (const auto& [name, report] : record.runs)
        runs.push_back(run_json(name, report));
    const Json json{{"checks", std::move(checks)}, {"runs", std::move(runs)}};
    return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
