#pragma once

#include "lessons/runner/lesson.hpp"
#include "src/nn/sequential.hpp"
#include "src/pipeline/pipeline.hpp"

namespace lockstep::lessons {

/// A stack of equal layers: a model that can be cut into equal stages. Each stage has two
/// layers tanh(linear(x)) of kStackWidth columns.
inline constexpr std::int64_t kStackWidth = 16;
inline constexpr std::int64_t kStackRows = 4;  ///< rows of a micro-batch
inline constexpr int kStackLayers = 2;         ///< layers of a stage

struct StackOptions {
    DType dtype = DType::f32;
    std::uint64_t seed = 1;
};

/// Returns part `part` of the stack; the part has `layers` layers.
std::unique_ptr<Sequential> stack_part(const ParameterInit& init, int part, int layers);

/// Returns `count` micro-batches. Inputs are made before the step, so the ledger does not
/// count them as activations.
std::vector<MicroBatch> stack_batches(Device& device, const StackOptions& options,
                                      int count, double weight);

/// Messages between stages have the shape of a micro-batch's input.
PartBoundary stack_boundary(DType dtype);

/// Returns the program of one stage: forward and backward of all micro-batches, once, by
/// the plan. The stage that computes the loss keeps it in the series "loss".
Program stack_program(const PipelinePlan& plan, const StackOptions& options);

/// Returns the bytes of a micro-batch's activations between two stages. A stage keeps
/// these activations and sends them to the next stage.
std::int64_t stack_boundary_bytes(DType dtype);

}  // namespace lockstep::lessons
