#pragma once

#include <optional>

#include "lessons/page/document.hpp"
#include "lessons/tools/model_on_mesh.hpp"
#include "src/comm/mesh_shape.hpp"
#include "src/text/json.hpp"

namespace lockstep::lessons {

/// Shows what ranks hold of a model on the mesh: the layers of each stage, the parts of
/// each parameter, and the bytes. Or shows everything that one rank holds.
Document model_page(const MeshShape& shape, const ModelOnMesh& model,
                    std::optional<int> rank);

/// Returns {"sizes", "spread", "parameters", "updated", "ranks"}.
Json model_json(const ModelOnMesh& model);

}  // namespace lockstep::lessons
