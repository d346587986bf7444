#pragma once

#include "lessons/runner/lesson.hpp"
#include "src/nn/sequential.hpp"
#include "src/pipeline/pipeline.hpp"

namespace lockstep::lessons {

/// A stack of equal layers, as a model to cut into equal stages: two layers
/// a stage, each tanh(linear(x)), of kStackWidth columns.
inline constexpr std::int64_t kStackWidth = 16;
inline constexpr std::int64_t kStackRows = 4;  ///< of a micro-batch
inline constexpr int kStackLayers = 2;         ///< of a stage

struct StackOptions {
    DType dtype = DType::f32;
    std::uint64_t seed = 1;
};

/// Returns the layers of part `part`, so many of them.
std::unique_ptr<Sequential> stack_part(const ParameterInit& init, int part, int layers);

/// Returns `count` micro-batches. Inputs are there before the step, so the ledger does
/// not count them as activations.
std::vector<MicroBatch> stack_batches(Device& device, const StackOptions& options,
                                      int count, double weight);

/// Between stages goes as much as a micro-batch's input has.
PartBoundary stack_boundary(DType dtype);

/// The program of one stage: forward and backward of all micro-batches, once, as the plan
/// says. Keeps the loss, where it is known, in the series "loss".
Program stack_program(const PipelinePlan& plan, const StackOptions& options);

/// Returns the bytes that a stage keeps of one micro-batch, and that it
/// sends to the next stage.
std::int64_t stack_boundary_bytes(DType dtype);

}  // namespace lockstep::lessons
