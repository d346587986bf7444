#pragma once

#include <vector>

#include "src/nn/module.hpp"
#include "src/nn/token_deal.hpp"
#include "src/parallel/arriving.hpp"

namespace lockstep {

/// Tensor parallelism: ranks share out the weights of each layer, and all work on the
/// same micro-batch. A region is where each has columns or heads of its own, between a
/// column-parallel and a row-parallel layer; outside, every rank holds all activations.
/// Entering one is f, leaving it is g, a conjugate pair (Shoeybi et al. 2019,
/// Megatron-LM, 1909.08053, section 3):
///
///     f   forward: nothing      backward: all-reduce
///     g   forward: all-reduce   backward: nothing
///
/// f, because all ranks read the whole x, so that its gradient is the sum
/// of theirs; g, because each rank has only its terms of the sum y. With t
/// ranks each sends 2(t-1)/t of the tensor's bytes for either.
///
/// Layers refer to it, and it to the device and the group, so each must
/// outlive what refers to it.
class TensorParallel {
  public:
    TensorParallel(Device& device, Communicator& group)
        : device_(device), group_(group) {}
    virtual ~TensorParallel() = default;
    TensorParallel(const TensorParallel&) = delete;
    TensorParallel& operator=(const TensorParallel&) = delete;

    Device& device() const { return device_; }
    Communicator& group() const { return group_; }
    int size() const { return group_.size(); }
    int rank() const { return group_.rank(); }

    /// f. Messages are started only: what comes next may not need to wait.
    /// Backward reduces in place: dx must be the caller's own.
    virtual Arriving enter(const Tensor& x);
    virtual Arriving enter_backward(const Tensor& dx);
    /// g, in place: `partial` must be the caller's own.
    virtual Tensor leave(const Tensor& partial);
    virtual Tensor leave_backward(const Tensor& dy);

    /// Says whether a rank holds only a stretch of the sequence outside
    /// regions; and which tokens it holds there: all, or its stretch.
    virtual bool splits_sequence() const { return false; }
    TokenDeal token_deal() const {
        if (!splits_sequence()) return {};
        return {TokenOrder::contiguous, size(), rank()};
    }

    /// A layer says so of its parameters: outside regions all ranks hold the same, and
    /// must step alike; within, each has a part of its own. Gradients of what is
    /// replicated are whole if every rank has seen all tokens, else partial.
    void replicate(const std::vector<Parameter*>& parameters,
                   SourceLine at = SourceLine::here());
    void shard(Parameter& parameter, SourceLine at = SourceLine::here());

    /// This rank's share of `count` rows, columns or heads; throws
    /// UsageError, which begins with `layer`, unless all get as many.
    std::int64_t share(const std::string& layer, const char* of,
                       std::int64_t count) const;

  private:
    Device& device_;
    Communicator& group_;
};

}  // namespace lockstep
