#include "lessons/tools/cluster_file.hpp"

namespace lockstep::lessons {

namespace {

Json curve_json(const Curve& curve) {
    Json points = Json::array();
    for (const Curve::Point& point : curve.points)
        points.push_back(Json(std::vector<double>{point.size, point.part}));
    return points;
}

Json link_json(const LinkSpec& link) {
    return {{"alpha_seconds", link.alpha_seconds},
            {"bytes_per_second", link.bytes_per_second},
            {"efficiency", curve_json(link.efficiency)}};
}

Json algorithms_json(const std::vector<CollectiveAlgorithm>& algorithms) {
    Json list = Json::array();
    for (const CollectiveAlgorithm& each : algorithms)
        list.push_back(
            {{"name", each.name},
             {"kind", CollectiveAlgorithm::kKinds[static_cast<std::size_t>(each.kind)]},
             {"base_seconds", each.base_seconds},
             {"inside_seconds", each.inside_seconds},
             {"between_seconds", each.between_seconds},
             {"inside_efficiency", each.inside_efficiency},
             {"between_efficiency", each.between_efficiency}});
    return list;
}

Json stragglers_json(const std::vector<ClusterSpec::Straggler>& stragglers) {
    Json list = Json::array();
    for (const ClusterSpec::Straggler& each : stragglers)
        list.push_back(
            {{"rank", each.rank}, {"compute", each.compute}, {"links", each.links}});
    return list;
}

}  // namespace

Json error_json(const ClusterSpec::FitError& error) {
    return {{"mean", error.mean},
            {"worst", error.worst},
            {"rows", error.rows},
            {"constants", error.constants}};
}

std::string cluster_text(const ClusterSpec& spec) {
    Json document{{"name", spec.name},
                  {"source", spec.source},
                  {"flops_f32", spec.flops_f32},
                  {"flops_f64", spec.flops_f64},
                  {"flops_bf16", spec.flops_bf16},
                  {"product_efficiency", curve_json(spec.product_efficiency)},
                  {"memory_bytes_per_second", spec.memory_bytes_per_second},
                  {"memory_efficiency", spec.memory_efficiency},
                  {"memory_bytes", spec.memory_bytes},
                  {"launch_seconds", spec.launch_seconds},
                  {"host_copy", link_json(spec.host_copy)},
                  {"host_links", spec.host_links},
                  {"host",
                   {{"flops_f32", spec.host.flops_f32},
                    {"flops_f64", spec.host.flops_f64},
                    {"memory_bytes_per_second", spec.host.memory_bytes_per_second},
                    {"memory_bytes", spec.host.memory_bytes}}},
                  {"devices_per_node", spec.devices_per_node},
                  {"inside", link_json(spec.inside)},
                  {"between", link_json(spec.between)},
                  {"network_ports", spec.network_ports},
                  {"nodes_per_switch", spec.nodes_per_switch},
                  {"oversubscription", spec.oversubscription},
                  {"algorithms", algorithms_json(spec.algorithms)},
                  {"stragglers", stragglers_json(spec.stragglers)}};
    if (spec.phases)
        document["phases"] = {{"forward", spec.phases->forward},
                              {"backward_input", spec.phases->backward_input},
                              {"backward_weight", spec.phases->backward_weight}};
    if (spec.error) document["error"] = error_json(*spec.error);
    return document.dump(2) + "\n";
}

}  // namespace lockstep::lessons
