#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lessons/page/document.hpp"
#include "lessons/tools/model_on_mesh.hpp"
#include "src/comm/mesh_shape.hpp"

namespace lockstep::lessons {

// What `lockstep mesh` says about a mesh.

/// Says which mesh is meant, and what is to be said of it.
struct MeshSettings {
    MeshShape shape;
    int per_node = 8;                              ///< devices
    std::vector<std::vector<std::string>> planes;  ///< the axes of each
    std::optional<int> rank;                       ///< of which it is said
};

/// Ranks that differ along some axes alone: lines, if it is one axis, else planes.
struct RankGroups {
    std::vector<std::string> axes;
    std::vector<std::vector<int>> ranks;  ///< of each; all ranks of the mesh together
    int fewest_nodes = 0;                 ///< that one of them touches
    int most_nodes = 0;

    const std::vector<int>& of(int rank) const;
};

struct ExaminedMesh {
    MeshSettings settings;
    std::vector<RankGroups> lines;  ///< of each axis
    std::vector<RankGroups> planes;
    std::optional<ModelOnMesh> model;

    const MeshShape& shape() const { return settings.shape; }
    int node_of(int rank) const { return rank / settings.per_node; }
};

/// Finds lines and planes; if there is a rank and nobody has asked for planes, those of
/// any two axes. Throws UsageError for a plane of what is no axis, or of one twice, and
/// for a rank that is not there.
ExaminedMesh examined_mesh(MeshSettings settings, std::optional<ModelOnMesh> model = {});

/// Lines, planes and nodes, or those of the one rank; and who holds what of the model.
Document mesh_page(const ExaminedMesh& mesh);

/// All of it as one JSON document.
std::string mesh_json(const ExaminedMesh& mesh);

/// "pp 0, tp 0–1": the places that those ranks have along axes, but for axes along which
/// they have all; "all ranks". If they are no such block of the mesh, "ranks 0, 3".
std::string where_text(const MeshShape& shape, const std::vector<int>& ranks);

}  // namespace lockstep::lessons
