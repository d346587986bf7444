#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lessons/page/document.hpp"
#include "lessons/tools/model_on_mesh.hpp"
#include "src/comm/mesh_shape.hpp"

namespace lockstep::lessons {

// The output of `lockstep mesh`.

/// Which mesh to show, and which parts of its description.
struct MeshSettings {
    MeshShape shape;
    int per_node = 8;                              ///< devices per node
    std::vector<std::vector<std::string>> planes;  ///< the axes of each plane
    std::optional<int> rank;                       ///< shows only this rank
};

/// Ranks that differ only along some axes: lines for one axis, planes for several.
struct RankGroups {
    std::vector<std::string> axes;
    std::vector<std::vector<int>> ranks;  ///< by line or plane
    int fewest_nodes = 0;                 ///< the fewest nodes that a line spans
    int most_nodes = 0;

    const std::vector<int>& group_of(int rank) const;
};

struct ExaminedMesh {
    MeshSettings settings;
    std::vector<RankGroups> lines;  ///< for each axis
    std::vector<RankGroups> planes;
    std::optional<ModelOnMesh> model;

    const MeshShape& shape() const { return settings.shape; }
    int node_of(int rank) const { return rank / settings.per_node; }
};

/// Finds lines and planes. If a rank is given and no planes are asked for, uses the
/// planes of each pair of axes. Throws UsageError for a plane with an unknown or repeated
/// axis, and for a rank that does not exist.
ExaminedMesh examined_mesh(MeshSettings settings, std::optional<ModelOnMesh> model = {});

/// Shows all lines, planes and nodes, or only those of one rank. Then shows what each
/// rank holds of the model.
Document mesh_page(const ExaminedMesh& mesh);

/// Returns the same content as one JSON document.
std::string mesh_json(const ExaminedMesh& mesh);

/// Returns the ranks' coordinates, "pp 0, tp 0–1". Leaves out axes along which the ranks
/// have all coordinates. Returns "all ranks" if no axis is left, and "ranks 0, 3" if the
/// ranks are not a block of the mesh.
std::string where_text(const MeshShape& shape, const std::vector<int>& ranks);

}  // namespace lockstep::lessons
