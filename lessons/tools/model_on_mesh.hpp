#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/settings.hpp"
#include "src/core/part.hpp"
#include "src/nn/gpt_kit.hpp"
#include "src/pipeline/gpt_on_mesh.hpp"

namespace lockstep::lessons {

/// Reads "mixtral-8x7b", "deepseek-v3", or sizes of a GPT, "layers=4,hidden=64". Throws a
/// UsageError that names the option.
GptSizes read_model(const std::string& option, const std::string& value);
/// Return the names of published models, and the sizes that other models can have.
std::vector<std::string> model_names();
const std::vector<programs::Setting>& model_settings();

/// A part of a parameter, and the ranks that hold it, ascending.
struct HeldPart {
    Part part;
    std::vector<int> ranks;
};

/// A parameter of the whole model, and the places of its parts.
struct SpreadParameter {
    std::string name;
    Shape whole;
    std::vector<HeldPart> parts;  ///< ordered by their first rank

    /// Returns the part that a rank holds; null if it holds none.
    const Part* part_on(int rank) const;
};

/// The amounts of a model that a rank holds between two steps, without activations.
struct RankHolding {
    std::int64_t numbers = 0;  ///< of values, without padding
    std::int64_t updated = 0;  ///< numbers that the rank updates
    std::int64_t value_bytes = 0;
    std::int64_t gradient_bytes = 0;
    std::int64_t optimizer_bytes = 0;

    std::int64_t bytes() const { return value_bytes + gradient_bytes + optimizer_bytes; }
    bool operator==(const RankHolding&) const = default;
};

/// The parts of a GPT in bf16 that each rank holds between two steps. The GPT is spread
/// over a mesh and trained by AdamW with f32 state.
struct ModelOnMesh {
    GptSizes sizes;
    MeshOptions options;
    std::vector<SpreadParameter> held;  ///< values, in the model's order
    /// The parameters that ranks update. Empty unless ZeRO makes them differ from `held`.
    std::vector<SpreadParameter> updated;
    std::vector<RankHolding> ranks;

    /// Returns short lines for a picture of the mesh, by rank: layers and number of
    /// parameters.
    std::vector<std::vector<std::string>> labels() const;
};

/// Makes the model on virtual devices that compute only shapes and have no memory limit,
/// and finds what each rank holds. Throws UsageError if the model cannot be spread this
/// way, or if all ranks together have more than some million parameters.
ModelOnMesh model_on_mesh(const GptSizes& sizes, const MeshOptions& options);

/// The layer of a parameter, and the rest of its name: "transformer.h.3." gives layer 3.
/// If the parameter belongs to no layer: -1 and the whole name.
struct LayerName {
    int layer = -1;
    std::string rest;
};
LayerName layer_name(const std::string& parameter);

/// Returns these parameters as pieces of the model: "wte, wpe, layers 0–3".
std::vector<std::string> pieces_of(const std::vector<std::string>& parameters);

}  // namespace lockstep::lessons
