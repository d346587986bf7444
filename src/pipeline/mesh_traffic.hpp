#pragma once

#include <cstdint>

#include "src/pipeline/gpt_on_mesh.hpp"
#include "src/run/run_report.hpp"

namespace lockstep {

/// A replica's micro-batch, and the type of what travels.
struct MicroBatchShape {
    std::int64_t length = 0;  ///< s
    std::int64_t batch = 1;   ///< b
    DType dtype = DType::f32;
};

/// The bytes that all devices of a mesh together send in a step, along each axis.
struct MeshTraffic {
    std::int64_t pp = 0;  ///< activations and their gradients between stages
    std::int64_t cp = 0;  ///< keys and values between ranks with parts of a sequence
    std::int64_t tp = 0;  ///< activations, and gradients of what all hold alike
    /// Gradients, and with ZeRO values: over the plane of replica_axes().
    std::int64_t replicas = 0;
    std::int64_t tied = 0;  ///< the gradient of a table at both ends of a pipeline
    bool operator==(const MeshTraffic&) const = default;
};

/// By formula, for a GPT without experts. Of n ranks that reduce S bytes, all together
/// send 2(n-1) S; that gather or scatter S, (n-1) S. With m micro-batches, L blocks, and
/// c and t ranks along cp and tp, each group of
///
///     tp   sends, a micro-batch: 8 (t-1) s/c b h a block; 2 (t-1) s/c b h each at the
///          table and the head; 6 (t-1) s/c b numbers of the loss, which are in f32 or
///          f64. With SequenceParallel 10 in the place of 8, and at the head 3 of 2
///          (Narayanan et al. 2021, 2104.04473, section 3.2; Korthikanti et al. 2022,
///          2205.05198, section 4.2.2)
///     cp   sends a block's keys and values round: see sent_forward and sent_backward
///     pp   sends 2 s/c b h numbers over each boundary; with SequenceParallel each
///          rank of "tp" its 1/t of them, else all of them the same
///     replicas reduces what each of its ranks holds, once a step
///
/// Zero's stage 1 sends as many, if n divides each bucket. Throws UsageError for experts,
/// recomputation, other stages of Zero, another strategy, and a schedule that has a part
/// of the model on two stages.
MeshTraffic mesh_traffic(const MeshPlan& plan, const MicroBatchShape& shape);

/// Returns how many numbers of the parameters all devices together hold: each replica
/// has them once, but what the ranks of a tensor group hold alike, t times; the table and
/// the head padded to a multiple of t rows; and a table that is tied over two stages on
/// both. Throws UsageError for experts, and for a part that two stages have.
std::int64_t parameters_on_mesh(const MeshPlan& plan);

/// What ranks of a run have sent, by the names of GptOnMesh's groups. What goes over the
/// world (norms) is none of these. Throws UsageError for groups of others.
MeshTraffic mesh_traffic(const RunReport& report);

}  // namespace lockstep
