#pragma once

#include "adapters.hpp"

// ZeRO (Rajbhandari et al. 2020, 1910.02054, section 5). Each function takes
// `training.steps` steps of AdamW, each with the same micro-batches, by the gradient of
// the mean loss over the rows of all ranks' micro-batches. A row's loss is its cross
// entropy, -log softmax(logits)[target]. It leaves new values where the old ones were.
//
// S is the bytes of all layers' values with their zeros, n the number of ranks.

/// a8.1. The optimizer's state is shared out: rank i has that of range i of each layer,
/// 2 S / n, and updates that range alone. Once a step, gradients are reduced and
/// scattered, and new values gathered: 2(n-1)/n S bytes, however many micro-batches
/// there are. Ranks have more or fewer of them; one may have none.
void stage_1(lockstep::Rank& rank, const Layers& layers,
             const MicroBatches& micro_batches, const Training& training);

/// a8.2. And the gradients: a layer's whole gradients are there from when its backward
/// begins until they have been reduced and scattered, beside the backward of the layer
/// before it. So S / n and two layers. Each micro-batch is reduced by itself: with m of
/// them, (m + 1)(n-1)/n S bytes. Every rank has as many micro-batches as the others, one
/// at least.
void stage_2(lockstep::Rank& rank, const Layers& layers,
             const MicroBatches& micro_batches, const Training& training);

/// a8.3. And the values: a layer's whole values are gathered for its forward and once
/// more for its backward, beside what the layer before it in that order computes, and let
/// go of after; those of the last layer are kept between its forward and its backward.
/// So S / n and two layers. 3(n-1)/n S bytes a micro-batch, less a gather of the last
/// layer. Micro-batches as in stage 2.
void stage_3(lockstep::Rank& rank, const Layers& layers,
             const MicroBatches& micro_batches, const Training& training);
