#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/settings.hpp"
#include "src/core/part.hpp"
#include "src/nn/gpt_kit.hpp"
#include "src/pipeline/gpt_on_mesh.hpp"

namespace lockstep::lessons {

/// Reads "mixtral-8x7b", "deepseek-v3", or sizes of a GPT, "layers=4,hidden=64". Throws
/// UsageError that names the option.
GptSizes read_model(const std::string& option, const std::string& value);
/// Names of published models; the sizes that others can have.
std::vector<std::string> model_names();
const std::vector<programs::Setting>& model_settings();

/// A part of a parameter, and the ranks that hold it, ascending.
struct HeldPart {
    Part part;
    std::vector<int> ranks;
};

/// A parameter of the whole model, and where its parts lie.
struct SpreadParameter {
    std::string name;
    Shape whole;
    std::vector<HeldPart> parts;  ///< by their first rank

    /// The part that a rank holds; null if it holds none.
    const Part* part_on(int rank) const;
};

/// What a rank has of a model between two steps, without activations.
struct RankHolding {
    std::int64_t numbers = 0;  ///< of values, without padding
    std::int64_t updated = 0;  ///< numbers that it updates
    std::int64_t value_bytes = 0;
    std::int64_t gradient_bytes = 0;
    std::int64_t optimizer_bytes = 0;

    std::int64_t bytes() const { return value_bytes + gradient_bytes + optimizer_bytes; }
    bool operator==(const RankHolding&) const = default;
};

/// A GPT in bf16 that is spread over a mesh and trained by AdamW, whose state is in f32:
/// who holds what of it between two steps.
struct ModelOnMesh {
    GptSizes sizes;
    MeshOptions options;
    std::vector<SpreadParameter> held;  ///< values; in the model's order
    /// What ranks update, if that is not what they hold: ZeRO shares it out.
    std::vector<SpreadParameter> updated;
    std::vector<RankHolding> ranks;

    /// Short lines for a picture of the mesh, by rank: layers, and how many numbers.
    std::vector<std::vector<std::string>> labels() const;
};

/// Makes the model on as many virtual devices, without numbers and without a limit of
/// their memory, and looks at what each rank has. Throws UsageError if it cannot be
/// spread so, and if all ranks together have millions of parameters.
ModelOnMesh model_on_mesh(const GptSizes& sizes, const MeshOptions& options);

/// The layer that a parameter belongs to, and its name without that: "transformer.h.3."
/// and the rest; -1 and the name if it is of no layer.
struct LayerName {
    int layer = -1;
    std::string rest;
};
LayerName layer_name(const std::string& parameter);

/// "wte, wpe, layers 0–3": what of a model these parameters are.
std::vector<std::string> pieces_of(const std::vector<std::string>& parameters);

}  // namespace lockstep::lessons
