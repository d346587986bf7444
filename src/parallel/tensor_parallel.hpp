#pragma once

#include <vector>

#include "src/nn/module.hpp"
#include "src/nn/token_deal.hpp"
#include "src/parallel/arriving.hpp"

namespace lockstep {

/// Tensor parallelism: ranks shard the weights of each layer, and all work on the same
/// micro-batch. In a region, between a column-parallel and a row-parallel layer, each
/// rank has its own columns or heads. Outside, every rank holds all activations. Entering
/// a region is f, leaving it is g, a conjugate pair (Shoeybi et al. 2019, Megatron-LM,
/// 1909.08053, section 3):
///
///     f   forward: nothing      backward: all-reduce
///     g   forward: all-reduce   backward: nothing
///
/// Backward of f sums, because all ranks read the whole x. Forward of g sums, because
/// each rank has only its terms of the sum y. With t ranks each sends 2(t-1)/t of the
/// tensor's bytes for f or g.
///
/// Layers refer to this object, and it refers to the device and the group. Each must
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

    /// f. Only starts messages: what comes next may not need to wait. Backward reduces dx
    /// in place, so the caller must own it.
    virtual Arriving enter(const Tensor& x);
    virtual Arriving enter_backward(const Tensor& dx);
    /// g, in place: the caller must own `partial`.
    virtual Tensor leave(const Tensor& partial);
    virtual Tensor leave_backward(const Tensor& dy);

    /// Return whether a rank holds only a stretch of the sequence outside regions, and
    /// which tokens it holds there: all, or its stretch.
    virtual bool splits_sequence() const { return false; }
    TokenDeal token_deal() const {
        if (!splits_sequence()) return {};
        return {TokenOrder::contiguous, size(), rank()};
    }

    /// A layer calls these for its parameters. Outside regions all ranks hold the same
    /// parameters and must update them in the same way; inside, each rank has its own
    /// part. Gradients of replicated parameters are whole if every rank has seen all
    /// tokens, else partial.
    void replicate(const std::vector<Parameter*>& parameters,
                   SourceLine at = SourceLine::here());
    void shard(Parameter& parameter, SourceLine at = SourceLine::here());

    /// Returns this rank's share of `count` rows, columns or heads. Throws UsageError,
    /// which begins with `layer`, unless all ranks get the same number.
    std::int64_t share(const std::string& layer, const char* unit,
                       std::int64_t count) const;

  private:
    Device& device_;
    Communicator& group_;
};

}  // namespace lockstep
