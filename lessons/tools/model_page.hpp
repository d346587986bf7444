#pragma once

#include <optional>

#include "lessons/page/document.hpp"
#include "lessons/tools/model_on_mesh.hpp"
#include "src/comm/mesh_shape.hpp"
#include "src/text/json.hpp"

namespace lockstep::lessons {

/// Says who holds what of a model that is spread over the mesh: layers by stage, parts of
/// each parameter, and how many bytes; or all that one rank has.
Document model_page(const MeshShape& shape, const ModelOnMesh& model,
                    std::optional<int> rank);

/// {"sizes", "spread", "parameters", "updated", "ranks"}.
Json model_json(const ModelOnMesh& model);

}  // namespace lockstep::lessons
