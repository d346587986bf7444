#include "lessons/tools/mesh_page.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/tools/model_page.hpp"
#include "src/chart/chart.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/text/json.hpp"
#include "src/text/numbers.hpp"
#include "src/text/table.hpp"

namespace lockstep::lessons {

const std::vector<int>& RankGroups::group_of(int rank) const {
    return *std::ranges::find_if(ranks, [rank](const std::vector<int>& group) {
        return std::ranges::binary_search(group, rank);
    });
}

namespace {

RankGroups groups_of(const MeshSettings& settings, const std::vector<std::string>& axes) {
    RankGroups groups{axes, settings.shape.planes(axes), settings.shape.ranks(), 0};
    for (const std::vector<int>& ranks : groups.ranks) {
        int nodes = 0, last = -1;
        for (const int rank : ranks)
            if (const int node = rank / settings.per_node;
                std::exchange(last, node) != node)
                ++nodes;
        groups.fewest_nodes = std::min(groups.fewest_nodes, nodes);
        groups.most_nodes = std::max(groups.most_nodes, nodes);
    }
    return groups;
}

/// Returns the axes with more than one rank.
std::vector<std::string> long_axes(const MeshShape& shape) {
    std::vector<std::string> names;
    for (const MeshShape::Axis& axis : shape.axes())
        if (axis.size > 1) names.push_back(axis.name);
    return names;
}

void require_plane(const MeshShape& shape, const std::vector<std::string>& axes) {
    const std::string asked = fmt::format("--plane {}", fmt::join(axes, ","));
    require(axes.size() > 1, "{}: name two or more axes, separated by commas", asked);
    std::set<std::string> seen;
    for (const std::string& axis : axes) {
        require(shape.has(axis), "{}: '{}' is no axis of {}", asked, axis, shape.text());
        require(seen.insert(axis).second, "{}: {} is there twice", asked, axis);
    }
}

}  // namespace

ExaminedMesh examined_mesh(MeshSettings settings, std::optional<ModelOnMesh> model) {
    const MeshShape& shape = settings.shape;
    require(!settings.rank || *settings.rank < shape.ranks(),
            "--rank {}: the ranks of {} are 0 to {}", settings.rank.value_or(0),
            shape.text(), shape.ranks() - 1);
    ExaminedMesh mesh{settings, {}, {}, std::move(model)};
    for (const MeshShape::Axis& axis : shape.axes())
        mesh.lines.push_back(groups_of(settings, {axis.name}));
    for (const std::vector<std::string>& axes : settings.planes) {
        require_plane(shape, axes);
        mesh.planes.push_back(groups_of(settings, axes));
    }
    if (!settings.rank || !settings.planes.empty()) return mesh;
    const std::vector<std::string> names = long_axes(shape);
    for (std::size_t i = 0; i < names.size(); ++i)
        for (std::size_t j = i + 1; j < names.size() && names.size() > 2; ++j)
            mesh.planes.push_back(groups_of(settings, {names[i], names[j]}));
    return mesh;
}

std::string where_text(const MeshShape& shape, const std::vector<int>& ranks) {
    std::string text;
    std::size_t block = 1;
    for (const MeshShape::Axis& axis : shape.axes()) {
        std::set<int> places;
        for (const int rank : ranks)
            places.insert(shape.coordinate(rank, axis.name));
        block *= places.size();
        if (static_cast<int>(places.size()) == axis.size) continue;
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axis.name,
                            ranges_text({places.begin(), places.end()}));
    }
    if (block != ranks.size()) return "ranks " + members_text(ranks, 24);
    return text.empty() ? "all ranks" : text;
}

namespace {

/// Returns "0,8", "0–7" or "0,8,16,…,56".
std::string ranks_text(const std::vector<int>& ranks, std::size_t most) {
    const int apart = ranks.back() - ranks.front();
    if (ranks.size() > 2 && apart + 1 == static_cast<int>(ranks.size()))
        return fmt::format("{}–{}", ranks.front(), ranks.back());
    if (ranks.size() <= most) return fmt::format("{}", fmt::join(ranks, ","));
    constexpr std::size_t kFirst = 3;
    const std::vector<int> first(ranks.begin(), ranks.begin() + kFirst);
    return fmt::format("{},…,{}", fmt::join(first, ","), ranks.back());
}

/// Returns "0,8 | 1,9 | … | 7,15"; all groups if there are few.
std::string groups_text(const RankGroups& groups) {
    constexpr std::size_t kMostShown = 8;
    constexpr std::size_t kMostRanks = 4;
    constexpr std::size_t kFirst = 3;
    const std::size_t count = groups.ranks.size();
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < count; ++i) {
        const bool is_shown = count <= kMostShown || i < kFirst || i + 1 == count;
        if (is_shown) texts.push_back(ranks_text(groups.ranks[i], kMostRanks));
        if (count > kMostShown && i == kFirst) texts.emplace_back("…");
    }
    return fmt::format("{}", fmt::join(texts, " | "));
}

/// Returns "inside a node" or "across 2 nodes".
std::string where_they_lie(int fewest, int most) {
    if (most == 1) return "inside a node";
    if (fewest == most) return fmt::format("across {} nodes", most);
    return fmt::format("across {} to {} nodes", fewest, most);
}

Table line_table(const ExaminedMesh& mesh) {
    Table table{{"axis", "ranks", "apart", "lines", "they lie", "which they are"}, {}};
    for (const RankGroups& lines : mesh.lines) {
        const std::string& axis = lines.axes.front();
        table.rows.push_back({axis, count_text(mesh.shape().size(axis)),
                              count_text(mesh.shape().stride(axis)),
                              count_text(static_cast<std::int64_t>(lines.ranks.size())),
                              where_they_lie(lines.fewest_nodes, lines.most_nodes),
                              groups_text(lines)});
    }
    return table;
}

Table plane_table(const ExaminedMesh& mesh) {
    Table table{{"plane", "ranks", "planes", "they lie", "which they are"}, {}};
    for (const RankGroups& planes : mesh.planes)
        table.rows.push_back(
            {fmt::format("{}", fmt::join(planes.axes, " x ")),
             count_text(static_cast<std::int64_t>(planes.ranks.front().size())),
             count_text(static_cast<std::int64_t>(planes.ranks.size())),
             where_they_lie(planes.fewest_nodes, planes.most_nodes),
             groups_text(planes)});
    return table;
}

/// Returns the ranks of a node.
std::vector<int> ranks_of_node(const ExaminedMesh& mesh, int node) {
    std::vector<int> ranks;
    const int first = node * mesh.settings.per_node;
    const int end = std::min(first + mesh.settings.per_node, mesh.shape().ranks());
    for (int rank = first; rank < end; ++rank)
        ranks.push_back(rank);
    return ranks;
}

int count_nodes(const ExaminedMesh& mesh) {
    return mesh.node_of(mesh.shape().ranks() - 1) + 1;
}

/// Shows only the first nodes and the last one if there are many.
Table node_table(const ExaminedMesh& mesh) {
    constexpr int kMostShown = 8;
    constexpr int kFirst = 3;
    const std::vector<std::string> axes = long_axes(mesh.shape());
    Table table{{"node", "ranks"}, {}};
    table.head.insert(table.head.end(), axes.begin(), axes.end());
    const int nodes = count_nodes(mesh);
    for (int node = 0; node < nodes; ++node) {
        if (nodes > kMostShown && node == kFirst) {
            table.rows.emplace_back(table.head.size(), "…");
            node = nodes - 1;
        }
        const std::vector<int> ranks = ranks_of_node(mesh, node);
        std::vector<std::string> row{std::to_string(node), ranges_text(ranks)};
        for (const std::string& axis : axes) {
            std::set<int> places;
            for (const int rank : ranks)
                places.insert(mesh.shape().coordinate(rank, axis));
            row.push_back(ranges_text({places.begin(), places.end()}));
        }
        table.rows.push_back(std::move(row));
    }
    return table;
}

std::string rank_sentence(const ExaminedMesh& mesh, int rank) {
    std::string places;
    for (const MeshShape::Axis& axis : mesh.shape().axes())
        places += fmt::format("{}{} {}", places.empty() ? "" : ", ", axis.name,
                              mesh.shape().coordinate(rank, axis.name));
    const int node = mesh.node_of(rank);
    return fmt::format("Rank {} is at {}, on node {}, which has the ranks {}.", rank,
                       places, node, ranges_text(ranks_of_node(mesh, node)));
}

Table rank_table(const ExaminedMesh& mesh, int rank) {
    constexpr std::size_t kMostRanks = 8;
    Table table{{"along", "its line or plane", "which lies"}, {}};
    const auto add = [&](const RankGroups& groups) {
        const std::vector<int>& ranks = groups.group_of(rank);
        std::set<int> nodes;
        for (const int other : ranks)
            nodes.insert(mesh.node_of(other));
        const auto count = static_cast<int>(nodes.size());
        table.rows.push_back({fmt::format("{}", fmt::join(groups.axes, " x ")),
                              ranks_text(ranks, kMostRanks),
                              where_they_lie(count, count)});
    };
    for (const RankGroups& lines : mesh.lines)
        if (lines.ranks.front().size() > 1) add(lines);
    for (const RankGroups& planes : mesh.planes)
        add(planes);
    return table;
}

}  // namespace

Document mesh_page(const ExaminedMesh& mesh) {
    Document page;
    const auto say = [&](const std::string& sentence) {
        page.push_back({Paragraph{words_of(sentence)}});
    };
    if (mesh.settings.rank) {
        say(rank_sentence(mesh, *mesh.settings.rank));
        if (mesh.shape().ranks() > 1)
            page.push_back({table_of(rank_table(mesh, *mesh.settings.rank))});
    } else {
        page.push_back({table_of(line_table(mesh))});
        if (!mesh.planes.empty()) page.push_back({table_of(plane_table(mesh))});
        if (mesh.settings.per_node > 1 && count_nodes(mesh) > 1)
            page.push_back({table_of(node_table(mesh))});
    }
    if (mesh.model)
        for (Block& block : model_page(mesh.shape(), *mesh.model, mesh.settings.rank))
            page.push_back(std::move(block));
    return page;
}

namespace {

Json json_of(const RankGroups& groups) {
    Json ranks = Json::array();
    for (const std::vector<int>& each : groups.ranks)
        ranks.push_back(Json(each));
    return {{"axes", Json(groups.axes)},
            {"fewest_nodes", groups.fewest_nodes},
            {"most_nodes", groups.most_nodes},
            {"ranks", std::move(ranks)}};
}

Json json_of_rank(const ExaminedMesh& mesh, int rank) {
    Json places = Json::object(), lines = Json::object(), planes = Json::array();
    for (const RankGroups& groups : mesh.lines) {
        const std::string& axis = groups.axes.front();
        places[axis] = mesh.shape().coordinate(rank, axis);
        lines[axis] = Json(groups.group_of(rank));
    }
    for (const RankGroups& groups : mesh.planes)
        planes.push_back(
            {{"axes", Json(groups.axes)}, {"ranks", Json(groups.group_of(rank))}});
    return {{"rank", rank},
            {"node", mesh.node_of(rank)},
            {"places", std::move(places)},
            {"lines", std::move(lines)},
            {"planes", std::move(planes)}};
}

}  // namespace

std::string mesh_json(const ExaminedMesh& mesh) {
    Json axes = Json::array(), lines = Json::array(), planes = Json::array(),
         nodes = Json::array(), places = Json::array();
    for (const MeshShape::Axis& axis : mesh.shape().axes())
        axes.push_back({{"name", axis.name},
                        {"size", axis.size},
                        {"apart", mesh.shape().stride(axis.name)}});
    for (const RankGroups& groups : mesh.lines)
        lines.push_back(json_of(groups));
    for (const RankGroups& groups : mesh.planes)
        planes.push_back(json_of(groups));
    for (int node = 0; node < count_nodes(mesh); ++node)
        nodes.push_back(Json(ranks_of_node(mesh, node)));
    for (int rank = 0; rank < mesh.shape().ranks(); ++rank)
        places.push_back(Json(mesh.shape().coordinates(rank)));
    Json document{{"ranks", mesh.shape().ranks()},
                  {"axes", std::move(axes)},
                  {"devices_per_node", mesh.settings.per_node},
                  {"places", std::move(places)},
                  {"lines", std::move(lines)},
                  {"planes", std::move(planes)},
                  {"nodes", std::move(nodes)}};
    if (mesh.settings.rank) document["rank"] = json_of_rank(mesh, *mesh.settings.rank);
    if (mesh.model) document["model"] = model_json(*mesh.model);
    return document.dump() + "\n";
}

}  // namespace lockstep::lessons
