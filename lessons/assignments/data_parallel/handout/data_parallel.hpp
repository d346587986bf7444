#pragma once

#include "adapters.hpp"

// The network maps x (rows, features) to logits (rows, classes). Its parameters and
// gradients are f64. A row's loss is its cross entropy, -log softmax(logits)[target].

/// a2.1. Returns the mean loss over the shard's rows, (1). Sets the network's gradients,
/// whatever they held before, to the gradient of that mean. Divides the rows into the
/// smallest number of micro-batches of at most most_rows rows. At any time, the device
/// holds forward's saved tensors for only one micro-batch. Without rows, mean and
/// gradient are 0. Sends no message.
lockstep::Tensor shard_gradient(lockstep::Rank& rank, lockstep::Module& network,
                                const Shard& shard, std::int64_t most_rows);

/// a2.2. Returns the mean loss over the rows of all ranks' shards, (1), and sets the
/// network's gradients to the gradient of that mean. Loss and gradients are the same on
/// every rank. Sends one all-reduce of one buffer.
lockstep::Tensor batch_gradient(lockstep::Rank& rank, lockstep::Module& network,
                                const Shard& shard, std::int64_t most_rows);

/// a2.3. Takes `steps` steps of SGD, without momentum, each with the gradient of the mean
/// over all ranks' rows. Returns each step's mean loss, (steps), with the parameters from
/// before the step. Parameters are the same on every rank before and after.
lockstep::Tensor train(lockstep::Rank& rank, lockstep::Module& network,
                       const Shard& shard, std::int64_t most_rows, int steps,
                       double learning_rate);
