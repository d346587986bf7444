#pragma once

#include "adapters.hpp"

// The network maps x (rows, features) to logits (rows, classes). Its parameters and
// gradients are f64. A row's loss is its cross entropy, -log softmax(logits)[target].

/// The gradients of a network, in buckets that are all-reduced while backward runs
/// (Li et al. 2020, PyTorch Distributed, 2006.15704, sections 3.2 and 4). Every rank
/// makes the same buckets.
class Buckets {
  public:
    /// a7.1. Puts the network's parameters into buckets, in reverse order. From then on
    /// each gradient is a view of its bucket. Sends nothing.
    Buckets(lockstep::Rank& rank, lockstep::Module& network, const BucketLimits& limits);
    /// Removes this object's hooks from the parameters.
    ~Buckets();
    Buckets(const Buckets&) = delete;
    Buckets& operator=(const Buckets&) = delete;

    /// a7.1. Returns the buckets, in order. A bucket is a tensor (elements) that contains
    /// only the gradients of the bucket.
    std::vector<lockstep::Tensor> tensors() const;

    /// a7.2. Begins a step of `micro_batches` (0 or more) backward passes on this rank,
    /// and sets the gradients to 0.
    void begin(int micro_batches);
    /// a7.2. Is called after the step's last backward (a rank may have no backward).
    /// Waits until gradients are the sums over all ranks.
    void finish();

  private:
    // Yours.
};

/// a7.2. Takes one step without its update: leaves on every rank the gradient of the mean
/// loss over the rows of all ranks' micro-batches. Sends one all-reduce for each bucket,
/// in the order of the buckets, as soon as all gradients of the bucket include the last
/// micro-batch. Returns this rank's part of the mean loss, (1): the weighted sum over its
/// micro-batches.
lockstep::Tensor batch_gradient(lockstep::Rank& rank, lockstep::Module& network,
                                Buckets& buckets, const MicroBatches& micro_batches);

/// a7.3. Takes `steps` steps of SGD, without momentum, each with the same micro-batches.
/// Returns this rank's part of each step's mean loss, (steps), with the parameters from
/// before the step. Parameters are the same on every rank before and after.
lockstep::Tensor train(lockstep::Rank& rank, lockstep::Module& network,
                       const MicroBatches& micro_batches, const BucketLimits& limits,
                       int steps, double learning_rate);
