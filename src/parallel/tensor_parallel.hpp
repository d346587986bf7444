#pragma once

#include <vector>

#include "src/nn/module.hpp"
#include "src/nn/token_deal.hpp"
#include "src/parallel/arriving.hpp"

namespace lockstep {

/// Tensor parallelism: ranks shard the weights of each layer, and all ranks work on the
/// same micro-batch. Between a column-parallel and a row-parallel layer (in a region),
/// each rank has its own columns or heads. Outside regions, every rank holds all
/// activations. f enters a region and g leaves it; they are a conjugate pair (Shoeybi
/// et al. 2019, Megatron-LM, 1909.08053, section 3):
///
///     f   forward: nothing      backward: all-reduce
///     g   forward: all-reduce   backward: nothing
///
/// In backward, f sums the ranks' gradients, because all ranks read the whole x. In
/// forward, g sums the ranks' terms of y. With t ranks, each rank sends 2(t-1)/t of the
/// tensor's bytes for f, and the same for g.
///
/// The device and the group must outlive this object, and this object must outlive its
/// layers.
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

    /// f. Only starts messages, so that the caller can do other work before it waits.
    /// Backward reduces dx in place, so the caller must own dx.
    virtual Arriving enter(const Tensor& x);
    virtual Arriving enter_backward(const Tensor& dx);
    /// g, in place: the caller must own `partial`.
    virtual Tensor leave(const Tensor& partial);
    virtual Tensor leave_backward(const Tensor& dy);

    /// splits_sequence() returns whether a rank holds only a stretch of the sequence
    /// outside regions; token_deal() returns which tokens it holds there.
    virtual bool splits_sequence() const { return false; }
    TokenDeal token_deal() const {
        if (!splits_sequence()) return {};
        return {TokenOrder::contiguous, size(), rank()};
    }

    /// A layer calls replicate() for its parameters outside regions: all ranks hold them
    /// and must update them in the same way. It calls shard() inside regions, where each
    /// rank has its own part. Gradients of replicated parameters are whole if every rank
    /// has seen all tokens; otherwise they are partial.
    void replicate(const std::vector<Parameter*>& parameters,
                   SourceLine at = SourceLine::here());
    void shard(Parameter& parameter, SourceLine at = SourceLine::here());

    /// Returns this rank's share of `count` rows, columns or heads. Throws a UsageError
    /// that begins with `layer` unless all ranks get the same number.
    std::int64_t share(const std::string& layer, const char* unit,
                       std::int64_t count) const;

  private:
    Device& device_;
    Communicator& group_;
};

}  // namespace lockstep
