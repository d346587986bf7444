#include "src/report/report_bytes.hpp"

#include <cstring>
#include <nlohmann/json.hpp>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

using Json = nlohmann::json;

// Each kind of record is an array of its members, in their order.

Json to_json(const HostTensor& tensor) {
    Json extents = Json::array();
    for (int d = 0; d < tensor.shape().dimensions(); ++d)
        extents.push_back(tensor.shape()[d]);
    const auto* begin = reinterpret_cast<const std::uint8_t*>(tensor.data());
    return {std::move(extents), static_cast<int>(tensor.dtype()),
            Json::binary({begin, begin + tensor.bytes()})};
}

HostTensor tensor_of(const Json& json) {
    const auto extents = json.at(0).get<std::vector<std::int64_t>>();
    HostTensor tensor(Shape(extents.data(), static_cast<int>(extents.size())),
                      static_cast<DType>(json.at(1).get<int>()));
    const auto& data = json.at(2).get_binary();
    require(static_cast<std::int64_t>(data.size()) == tensor.bytes(),
            "a tensor's bytes are not its shape's");
    if (!data.empty()) std::memcpy(tensor.data(), data.data(), data.size());
    return tensor;
}

Json to_json(const Traffic& traffic) {
    return {traffic.group,
            traffic.verb,
            traffic.between_nodes,
            traffic.calls,
            traffic.messages_sent,
            traffic.bytes_sent,
            traffic.messages_received,
            traffic.bytes_received};
}

Traffic traffic_of(const Json& json) {
    return {json.at(0), json.at(1), json.at(2), json.at(3),
            json.at(4), json.at(5), json.at(6), json.at(7)};
}

Json to_json(const RankReport& rank) {
    Json kept = Json::object();
    for (const auto& [name, tensor] : rank.kept)
        kept[name] = to_json(tensor);
    Json traffic = Json::array();
    for (const Traffic& element : rank.traffic)
        traffic.push_back(to_json(element));
    const TimeReport& time = rank.time;
    const MemoryReport& memory = rank.memory;
    return {{time.compute, time.communication, time.copy, time.waiting, time.end},
            {memory.current, memory.at_peak, memory.peak, memory.category_peak},
            std::move(traffic),
            rank.flops,
            std::move(kept),
            Json(rank.series)};
}

RankReport rank_of(const Json& json) {
    RankReport rank;
    const Json& time = json.at(0);
    rank.time = {time.at(0), time.at(1), time.at(2), time.at(3), time.at(4)};
    const Json& memory = json.at(1);
    memory.at(0).get_to(rank.memory.current);
    memory.at(1).get_to(rank.memory.at_peak);
    memory.at(2).get_to(rank.memory.peak);
    memory.at(3).get_to(rank.memory.category_peak);
    for (const Json& element : json.at(2))
        rank.traffic.push_back(traffic_of(element));
    json.at(3).get_to(rank.flops);
    for (const auto& [name, tensor] : json.at(4).items())
        rank.kept.emplace(name, tensor_of(tensor));
    json.at(5).get_to(rank.series);
    return rank;
}

Json to_json(const TraceEvent& event) {
    return {event.rank, event.queue,       event.name,  event.kind,    event.start,
            event.end,  event.micro_batch, event.bytes, event.at.file, event.at.line};
}

TraceEvent event_of(const Json& json) {
    return {json.at(0),
            json.at(1),
            json.at(2),
            json.at(3),
            json.at(4),
            json.at(5),
            json.at(6),
            json.at(7),
            SourceLine::of(json.at(8).get<std::string>(), json.at(9).get<int>())};
}

Json to_json(const TraceFlow& flow) {
    return {flow.source_rank, flow.destination_rank, flow.queue, flow.start, flow.end,
            flow.bytes};
}

TraceFlow flow_of(const Json& json) {
    return {json.at(0), json.at(1), json.at(2), json.at(3), json.at(4), json.at(5)};
}

Json to_json(const TraceMemory& memory) {
    return {memory.rank, memory.time, memory.bytes};
}

TraceMemory memory_of(const Json& json) {
    TraceMemory memory{json.at(0), json.at(1), {}};
    json.at(2).get_to(memory.bytes);
    return memory;
}

template <typename Element>
Json list(const std::vector<Element>& elements) {
    Json json = Json::array();
    for (const Element& element : elements)
        json.push_back(to_json(element));
    return json;
}

template <typename Element>
void read(const Json& json, Element (*element_of)(const Json&),
          std::vector<Element>& elements) {
    for (const Json& element : json)
        elements.push_back(element_of(element));
}

}  // namespace

std::string report_bytes(const RunReport& report) {
    const Json json{list(report.ranks), list(report.trace), list(report.flows),
                    list(report.memory_trace)};
    std::string bytes;
    Json::to_cbor(json, bytes);
    return bytes;
}

RunReport read_report(const std::string& bytes) {
    try {
        const Json json = Json::from_cbor(bytes);
        RunReport report;
        read(json.at(0), rank_of, report.ranks);
        read(json.at(1), event_of, report.trace);
        read(json.at(2), flow_of, report.flows);
        read(json.at(3), memory_of, report.memory_trace);
        return report;
    } catch (const Json::exception&) {
        throw UsageError("these bytes are no run's report");
    }
}

}  // namespace lockstep
