#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/rank.hpp"

// Six programs, each with one mistake. Every rank calls the function at the same time,
// with its own tensors, which are all f64 except for labels. These comments say what each
// program should do, and they are right. n = rank.size(), r = rank.index().

/// a6.1, filter.cpp. Data parallelism over documents: steps of SGD on the squared error
/// of y = x W + b, summed (not averaged) over the documents that all ranks have in that
/// step. Documents that were too long were taken out beforehand, so batches differ in
/// size, and may have no document. weight (in, out) and bias (out) are the same on all
/// ranks, before and after. inputs[step] (documents, in), targets[step] (documents, out);
/// every rank has the same number of steps.
void train_filtered(lockstep::Rank& rank, const lockstep::Tensor& weight,
                    const lockstep::Tensor& bias,
                    const std::vector<lockstep::Tensor>& inputs,
                    const std::vector<lockstep::Tensor>& targets);

/// a6.2, pipeline.cpp. n stages, each with one layer y = tanh(x W), by 1F1B: stage s
/// holds the activations of at most min(n - s, micro-batches) micro-batches, and no stage
/// is idle longer than in 1F1B. weight (width, width) is this stage's. gradient, of the
/// same shape, is set to the gradient of the squared error, summed over all
/// micro-batches. Each micro-batch is (rows, width). The first stage has `inputs`, the
/// last one has `targets`, other stages have none.
void pipeline_gradients(lockstep::Rank& rank, const lockstep::Tensor& weight,
                        const lockstep::Tensor& gradient, int micro_batches,
                        std::int64_t rows, const std::vector<lockstep::Tensor>& inputs,
                        const std::vector<lockstep::Tensor>& targets);

/// a6.3, prefetch.cpp. Forward through layers y = tanh(x W) whose weights are sharded
/// over all ranks (ZeRO, stage 3): shards[layer] (width / n, width) are rows r width / n
/// and following of that layer's W. A layer is gathered while the one before it
/// computes. At most two layers are whole at a time. x (rows, width) is each rank's own.
/// So is y, which is returned.
lockstep::Tensor prefetching_forward(lockstep::Rank& rank,
                                     const std::vector<lockstep::Tensor>& shards,
                                     const lockstep::Tensor& x);

/// a6.4, evaluate.cpp. Returns the loss on a validation set, (1): the mean, over all its
/// rows, of the cross-entropy of x W, the same on every rank. weight (in, classes). The
/// set has `rows` rows; this rank has chunk(rows, n, r) of them: x (count, in) and
/// labels (count), i32.
lockstep::Tensor evaluate(lockstep::Rank& rank, const lockstep::Tensor& weight,
                          std::int64_t rows, const lockstep::Tensor& x,
                          const lockstep::Tensor& labels);

/// a6.5, clip.cpp. Tensor parallelism, after backward: scales the gradient of the whole
/// model so that its norm is `largest` if it was larger, and else leaves it as it is.
/// Each rank has its own part of some parameters (`sharded`). Others, such as those of
/// layer norms, and their gradients are the same on all ranks (`replicated`). Any shapes.
void clip_gradients(lockstep::Rank& rank, const std::vector<lockstep::Tensor>& sharded,
                    const std::vector<lockstep::Tensor>& replicated, double largest);

/// a6.6, accumulate.cpp. Data parallelism with gradient accumulation: sets `gradients`,
/// on every rank, to those of the squared error of y = tanh(x W1) W2, averaged over the
/// ranks and their micro-batches. weights: W1 (in, hidden), W2 (hidden, out); gradients
/// likewise. inputs[m] (rows, in), targets[m] (rows, out).
void accumulate_gradients(lockstep::Rank& rank,
                          const std::vector<lockstep::Tensor>& weights,
                          const std::vector<lockstep::Tensor>& gradients,
                          const std::vector<lockstep::Tensor>& inputs,
                          const std::vector<lockstep::Tensor>& targets);
