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
/// ranks, before and after. Shapes: inputs[step] (documents, in), targets[step]
/// (documents, out). Every rank has the same number of steps.
void train_filtered(lockstep::Rank& rank, const lockstep::Tensor& weight,
                    const lockstep::Tensor& bias,
                    const std::vector<lockstep::Tensor>& inputs,
                    const std::vector<lockstep::Tensor>& targets);

/// a6.2, pipeline.cpp. n stages, each with one layer y = tanh(x W), by 1F1B: stage s
/// holds the activations of at most min(n - s, micro-batches) micro-batches, and no stage
/// is idle longer than in 1F1B. weight (width, width) is this stage's. gradient, of the
/// same shape, is set to the gradient of the squared error, summed over all
/// micro-batches. Each micro-batch is (rows, width). The first stage has `inputs`, the
/// last has `targets`, others have neither.
void pipeline_gradients(lockstep::Rank& rank, const lockstep::Tensor& weight,
                        const lockstep::Tensor& gradient, int micro_batches,
                        std::int64_t rows, const std::vector<lockstep::Tensor>& inputs,
                        const std::vector<lockstep::Tensor>& targets);

/// a6.3, prefetch.cpp. Forward through layers y = tanh(x W) whose weights are sharded
/// over all ranks (ZeRO, stage 3): shards[layer] (width / n, width) has rows of that
/// layer's W; the first is row r width / n. A layer is gathered while the previous one
/// computes. At most two layers are whole at a time. Each rank has its own x (rows,
/// width), and returns y of its own x.
lockstep::Tensor prefetching_forward(lockstep::Rank& rank,
                                     const std::vector<lockstep::Tensor>& shards,
                                     const lockstep::Tensor& x);

/// a6.4, evaluate.cpp. Returns the loss on a validation set, (1), the same on every rank.
/// The loss is the mean cross-entropy of x W over all rows of the set; W is weight
/// (in, classes). The set has `rows` rows; this rank has chunk(rows, n, r) of them:
/// x (count, in) and labels (count), i32.
lockstep::Tensor evaluate(lockstep::Rank& rank, const lockstep::Tensor& weight,
                          std::int64_t rows, const lockstep::Tensor& x,
                          const lockstep::Tensor& labels);

/// a6.5, clip.cpp. Tensor parallelism, after backward. If the norm of the whole model's
/// gradient is larger than `largest`, scales the gradient so that its norm is `largest`.
/// `sharded`: gradients of this rank's part of some parameters. `replicated`: gradients
/// that are the same on all ranks, such as those of layer norms. Any shapes.
void clip_gradients(lockstep::Rank& rank, const std::vector<lockstep::Tensor>& sharded,
                    const std::vector<lockstep::Tensor>& replicated, double largest);

/// a6.6, accumulate.cpp. Data parallelism with gradient accumulation: sets `gradients` on
/// every rank to the gradients of the squared error of y = tanh(x W1) W2, averaged over
/// the ranks and their micro-batches. weights and gradients: W1 (in, hidden), W2 (hidden,
/// out). inputs[m] (rows, in), targets[m] (rows, out).
void accumulate_gradients(lockstep::Rank& rank,
                          const std::vector<lockstep::Tensor>& weights,
                          const std::vector<lockstep::Tensor>& gradients,
                          const std::vector<lockstep::Tensor>& inputs,
                          const std::vector<lockstep::Tensor>& targets);
