#pragma once

#include <optional>

#include "src/cost/cluster_spec.hpp"
#include "src/pipeline/mesh_traffic.hpp"

namespace lockstep::lessons {

// Steps of a GPT on a mesh, whose numbers are not computed.

/// One step, from the first message on: bf16 with masters in f32, AdamW, gradients
/// clipped by their norm over all devices.
struct MeshStep {
    GptSizes sizes;
    MeshOptions options;
    MicroBatchShape shape{0, 1, DType::bf16};
    ClusterSpec spec;
};

/// Runs the second of two steps, by shapes only: what comes before the first one, and
/// values that are on their way behind it, are in both. Throws OutOfMemoryError if a
/// device is full.
struct MeasuredMeshStep {
    Picoseconds time = 0;
    RunReport report;  ///< of one step

    /// The largest of any device.
    std::int64_t state = 0;        ///< values, gradients, and the optimizer's
    std::int64_t activations = 0;  ///< what forward keeps for backward
    std::int64_t peak = 0;
};
MeasuredMeshStep measure_mesh_step(const MeshStep& step, bool trace = false);

/// The same, or nothing if it does not fit.
std::optional<MeasuredMeshStep> measure_if_it_fits(const MeshStep& step);

/// Bytes that all devices together send between nodes.
std::int64_t sent_between_nodes(const RunReport& report);

}  // namespace lockstep::lessons
