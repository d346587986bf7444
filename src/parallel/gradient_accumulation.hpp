#pragma once

#include <span>

#include "src/nn/losses.hpp"
#include "src/nn/module.hpp"

namespace lockstep {

/// A part of a batch: rows of input and target, and the weight of its loss.
/// With weight B_i / B the parts of a batch add up to its mean.
struct MicroBatch {
    Tensor input;
    Tensor target;
    double weight = 1;
};

/// One micro-batch forward and backward: adds weight times gradient to the model's
/// gradients, and gives weight times loss, (1). `index` is the micro-batch's, for
/// timelines.
Tensor forward_backward(Device& device, Module& model, const Loss& loss,
                        const MicroBatch& batch, int index = 0,
                        SourceLine at = SourceLine::here());

/// Gradient accumulation: the gradient of a large batch from small ones,
/// one after another, in the activation memory of one. The gradient of a
/// sum is the sum of the gradients, and backward adds to what is there.
///
/// Leaves the sum of weight times gradient in the model's gradients, and gives the sum of
/// weight times loss, (1). Peak activations are one micro-batch's. Huang et al. 2019,
/// GPipe (1811.06965), section 2.2 splits a mini-batch so.
Tensor accumulate_gradients(Device& device, Module& model, const Loss& loss,
                            std::span<const MicroBatch> micro_batches,
                            SourceLine at = SourceLine::here());

}  // namespace lockstep
