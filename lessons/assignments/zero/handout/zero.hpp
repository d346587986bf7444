#pragma once

#include "adapters.hpp"

// ZeRO (Rajbhandari et al. 2020, 1910.02054, section 5). Each function takes
// `training.steps` steps of AdamW, each with the same micro-batches, by the gradient of
// the mean loss over the rows of all ranks' micro-batches. A row's loss is its cross
// entropy, -log softmax(logits)[target]. New values are written in place of the old ones.
//
// S is the bytes of all layers' values with their zeros; n is the number of ranks.

/// a8.1. The optimizer's state is sharded: rank i holds the state of range i of each
/// layer (2 S / n), and updates only that range. Each step has one reduce-scatter of the
/// gradients and one all-gather of the new values (2(n-1)/n S bytes), for any number of
/// micro-batches. Ranks may have different numbers of micro-batches, or none.
void stage_1(lockstep::Rank& rank, const Layers& layers,
             const MicroBatches& micro_batches, const Training& training);

/// a8.2. Gradients are sharded, too. A layer's whole gradients exist from the start of
/// its backward to the end of their reduce-scatter, which overlaps with the previous
/// layer's backward. So a rank holds S / n and two layers. Each micro-batch is reduced on
/// its own: m micro-batches send (m + 1)(n-1)/n S bytes. All ranks have the same number
/// of micro-batches, at least one.
void stage_2(lockstep::Rank& rank, const Layers& layers,
             const MicroBatches& micro_batches, const Training& training);

/// a8.3. Values are sharded, too. A layer's whole values are gathered for its forward and
/// again for its backward; each gather overlaps with the layer that computes before it.
/// After use, the values are freed, but those of the last layer are kept until its
/// backward. So a rank holds S / n and two layers. A micro-batch sends 3(n-1)/n S bytes,
/// minus one gather of the last layer. Micro-batches are as in stage 2.
void stage_3(lockstep::Rank& rank, const Layers& layers,
             const MicroBatches& micro_batches, const Training& training);
