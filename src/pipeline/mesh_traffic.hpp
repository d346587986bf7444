#pragma once

#include <cstdint>

#include "src/pipeline/gpt_on_mesh.hpp"
#include "src/run/run_report.hpp"

namespace lockstep {

/// The size of a replica's micro-batch, and the type of the tensors that are sent.
struct MicroBatchShape {
    std::int64_t length = 0;  ///< s
    std::int64_t batch = 1;   ///< b
    DType dtype = DType::f32;
};

/// The bytes that all devices of a mesh together send in a step, along each axis.
struct MeshTraffic {
    std::int64_t pp = 0;  ///< activations and their gradients between stages
    std::int64_t cp = 0;  ///< keys and values between ranks with parts of a sequence
    std::int64_t tp = 0;  ///< activations, and gradients of replicated parameters
    /// Gradients, and with ZeRO also values, over the plane of replica_axes().
    std::int64_t replicas = 0;
    std::int64_t tied = 0;  ///< the gradient of a table at both ends of a pipeline
    bool operator==(const MeshTraffic&) const = default;
};

/// Returns the traffic by formula, for a GPT without experts. If n ranks all-reduce S
/// bytes, they send 2(n-1) S together; if they gather or scatter S, they send (n-1) S.
/// With m micro-batches, L blocks, and c and t ranks along cp and tp, each group of
///
///     tp   sends in a micro-batch: 8 (t-1) s/c b h numbers in each block; 2 (t-1) s/c b
///          h at the table, and the same at the head; 6 (t-1) s/c b for the loss, which
///          are in f32 or f64. With SequenceParallel it is 10 instead of 8, and 3
///          instead of 2 at the head (Narayanan et al. 2021, 2104.04473, section 3.2;
///          Korthikanti et al. 2022, 2205.05198, section 4.2.2)
///     cp   sends a block's keys and values around: see sent_forward and sent_backward
///     pp   sends 2 s/c b h numbers over each boundary; with SequenceParallel each rank
///          of "tp" sends its 1/t of them, otherwise each rank sends all of them
///     replicas reduces the gradients of its ranks once a step
///
/// ZeRO stage 1 sends the same number of bytes, if n divides each bucket. Throws
/// UsageError for experts, recomputation, other stages of ZeRO, another strategy, and a
/// schedule that has a part of the model on two stages.
MeshTraffic mesh_traffic(const MeshPlan& plan, const MicroBatchShape& shape);

/// Returns how many parameters all devices together hold. Each replica holds the
/// parameters once, with three exceptions: parameters that a tensor group replicates
/// count t times; the table and the head are padded to a multiple of t rows; a table that
/// is tied over two stages is on both. Throws UsageError for experts, and for a part that
/// two stages have.
std::int64_t parameters_on_mesh(const MeshPlan& plan);

/// Returns the bytes that the ranks of a run have sent, by axis; the names of GptOnMesh's
/// groups tell the axis. Traffic over the world (norms) does not count. Throws UsageError
/// for any other group.
MeshTraffic mesh_traffic(const RunReport& report);

}  // namespace lockstep
