#pragma once

#include <optional>
#include <utility>

#include "adapters.hpp"

// The network makes of x (rows, features) the logits (rows, classes); its parameters and
// gradients are f64. A row's loss is its cross entropy, -log softmax(logits)[target].

/// The gradients of a network, in buckets that are all-reduced while backward goes on (Li
/// et al. 2020, PyTorch Distributed, 2006.15704, sections 3.2 and 4). Every rank makes
/// the same buckets.
class Buckets {
  public:
    /// a7.1. Deals the network's parameters out to buckets, in reverse order. From then
    /// on each gradient is a view of its bucket. Sends nothing.
    Buckets(lockstep::Rank& rank, lockstep::Module& network, const BucketLimits& limits);
    /// Takes back the hooks that it has put on parameters.
    ~Buckets();
    Buckets(const Buckets&) = delete;
    Buckets& operator=(const Buckets&) = delete;

    /// a7.1. The buckets, from the first: of each its gradients, (elements), and nothing
    /// else.
    std::vector<lockstep::Tensor> tensors() const;

    /// a7.2. A step of so many backward passes begins on this rank, 0 or more: gradients
    /// are 0.
    void begin(int micro_batches);
    /// a7.2. The step's last backward is done, if there was one. Waits until gradients
    /// are the sums of all ranks'.
    void finish();

  private:
    struct Bucket {
        lockstep::Tensor gradients;
        std::vector<lockstep::Parameter*> members;
        std::size_t missing = 0;  ///< gradients that are not there yet
        std::optional<lockstep::Work> work;
    };

    /// The parameter's gradient has all that this rank adds to it in the step.
    void ready(Bucket& bucket);
    /// Reduces the next buckets that have all gradients, or all buckets that are left.
    void start(bool all);

    lockstep::Rank& rank_;
    lockstep::Module& network_;
    std::vector<Bucket> buckets_;
    std::size_t next_ = 0;  ///< the bucket that is reduced next, on all ranks alike
    std::vector<std::pair<lockstep::Parameter*, lockstep::Parameter::HookId>> hooks_;
};

/// a7.2. One step without its update: leaves on every rank the gradient of the mean loss
/// over the rows of all ranks' micro-batches. One all-reduce a bucket, in the order of
/// the buckets, each begun as soon as the last gradient of its bucket has the last
/// micro-batch's part. Returns this rank's part of the mean loss, (1): what its
/// micro-batches, each with its weight, add to it.
lockstep::Tensor batch_gradient(lockstep::Rank& rank, lockstep::Module& network,
                                Buckets& buckets, const MicroBatches& micro_batches);

/// a7.3. Takes `steps` steps of SGD, without momentum, each with the same micro-batches.
/// Returns this rank's part of the mean loss of each step, (steps), with the parameters
/// that the step began with. Parameters are the same on every rank before and after.
lockstep::Tensor train(lockstep::Rank& rank, lockstep::Module& network,
                       const MicroBatches& micro_batches, const BucketLimits& limits,
                       int steps, double learning_rate);
