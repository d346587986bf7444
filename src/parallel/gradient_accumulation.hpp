#pragma once

#include <span>

#include "src/nn/losses.hpp"
#include "src/nn/module.hpp"

namespace lockstep {

/// A part of a batch: rows of input and target, and the weight of the part's loss. With
/// the weights B_i / B, the losses of all parts add up to the mean loss of the batch.
struct MicroBatch {
    Tensor input;
    Tensor target;
    double weight = 1;
};

/// Runs one micro-batch forward and backward: adds weight times gradient to the model's
/// gradients, and returns weight times loss, (1). `index` numbers the micro-batch in
/// timelines.
Tensor forward_backward(Device& device, Module& model, const Loss& loss,
                        const MicroBatch& batch, int index = 0,
                        SourceLine at = SourceLine::here());

/// Gradient accumulation: computes the gradient of a large batch from small batches, one
/// after another, with the activation memory of one small batch. The gradient of a sum is
/// the sum of the gradients, and backward adds to the gradients that exist.
///
/// Leaves the sum of weight times gradient in the model's gradients, and returns the sum
/// of weight times loss, (1). Peak activations are those of one micro-batch. Huang et al.
/// 2019, GPipe (1811.06965), section 2.2 splits a mini-batch in this way.
Tensor accumulate_gradients(Device& device, Module& model, const Loss& loss,
                            std::span<const MicroBatch> micro_batches,
                            SourceLine at = SourceLine::here());

}  // namespace lockstep
