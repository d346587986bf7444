#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/rank.hpp"

// Six programs, each with one mistake. Every rank calls the function at the same time,
// with tensors of its own, all f64 but for labels. What is said here is what each should
// do, and it is right; n = rank.size(), r = rank.index().

/// a6.1, filter.cpp. Data parallelism over documents: steps of SGD on the squared error
/// of y = x W + b, summed (not averaged) over the documents that all ranks have in that
/// step. Those that were too long were taken out beforehand, so that batches differ in
/// size, and may have no document. weight (in, out) and bias (out): the same on all
/// ranks, before and after. inputs[step] (documents, in), targets[step] (documents, out);
/// as many steps on every rank.
void train_filtered(lockstep::Rank& rank, const lockstep::Tensor& weight,
                    const lockstep::Tensor& bias,
                    const std::vector<lockstep::Tensor>& inputs,
                    const std::vector<lockstep::Tensor>& targets);

/// a6.2, pipeline.cpp. n stages, one layer y = tanh(x W) each, 1F1B: stage s holds the
/// activations of min(n - s, micro-batches) micro-batches at most, and no stage idles
/// longer than 1F1B must. weight (width, width): this stage's. gradient, likewise: comes
/// out as that of the squared error, summed over all micro-batches. Each micro-batch is
/// (rows, width); the first stage has `inputs`, the last one `targets`, other stages have
/// none.
void pipeline_gradients(lockstep::Rank& rank, const lockstep::Tensor& weight,
                        const lockstep::Tensor& gradient, int micro_batches,
                        std::int64_t rows, const std::vector<lockstep::Tensor>& inputs,
                        const std::vector<lockstep::Tensor>& targets);

/// a6.3, prefetch.cpp. Forward through layers y = tanh(x W) whose weights lie sharded
/// over all ranks (ZeRO, stage 3): shards[layer] (width / n, width) are rows r width / n
/// and following of that layer's W. A layer is gathered while the one before it computes;
/// two are whole at a time. x (rows, width) is each rank's own; so is y, which is
/// returned.
lockstep::Tensor prefetching_forward(lockstep::Rank& rank,
                                     const std::vector<lockstep::Tensor>& shards,
                                     const lockstep::Tensor& x);

/// a6.4, evaluate.cpp. The loss on a validation set: the mean, over all its rows, of the
/// cross-entropy of x W; the same on every rank. weight (in, classes). Of the set's
/// `rows` rows this rank has chunk(rows, n, r): x (count, in) and labels (count), i32.
/// Returned: (1).
lockstep::Tensor evaluate(lockstep::Rank& rank, const lockstep::Tensor& weight,
                          std::int64_t rows, const lockstep::Tensor& x,
                          const lockstep::Tensor& labels);

/// a6.5, clip.cpp. Tensor parallelism, after backward: scales the gradient of the whole
/// model so that its norm is `largest`, if it is more; else leaves it. Of some parameters
/// each rank has a part (`sharded`); others, such as those of layer norms, are the same
/// on all ranks, and so are their gradients (`replicated`). Any shapes.
void clip_gradients(lockstep::Rank& rank, const std::vector<lockstep::Tensor>& sharded,
                    const std::vector<lockstep::Tensor>& replicated, double largest);

/// a6.6, accumulate.cpp. Data parallelism with gradient accumulation: `gradients` come
/// out, on every rank, as those of the squared error of y = tanh(x W1) W2, averaged over
/// the ranks and their micro-batches. weights: W1 (in, hidden), W2 (hidden, out);
/// gradients likewise. inputs[m] (rows, in), targets[m] (rows, out).
void accumulate_gradients(lockstep::Rank& rank,
                          const std::vector<lockstep::Tensor>& weights,
                          const std::vector<lockstep::Tensor>& gradients,
                          const std::vector<lockstep::Tensor>& inputs,
                          const std::vector<lockstep::Tensor>& targets);
