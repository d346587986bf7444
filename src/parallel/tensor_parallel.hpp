#pragma once

#include <optional>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/nn/parameter.hpp"

namespace lockstep {

/// A tensor that a message is bringing.
struct Arriving {
    Tensor tensor;
    Tensor source;  ///< what is sent; to be kept until it has arrived
    std::optional<Work> work;

    Tensor wait();
};

/// Tensor parallelism: ranks share out the weights of each layer, and all
/// work on the same micro-batch. A region is where each has columns or
/// heads of its own, between a column-parallel and a row-parallel layer;
/// outside, every rank holds all activations. What leads in is f, what
/// leads out is g, a conjugate pair (Shoeybi et al. 2019, Megatron-LM,
/// 1909.08053, section 3):
///
///     f   forward: nothing      backward: all-reduce
///     g   forward: all-reduce   backward: nothing
///
/// f, because all ranks read the whole x, so that its gradient is the sum
/// of theirs; g, because each rank has only its terms of the sum y. With t
/// ranks each sends 2(t-1)/t of the tensor's bytes for either.
///
/// One of these for each group of ranks; layers refer to it, so it must
/// outlive them.
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

    /// f. Backward's all-reduce is started only, since weights' gradients
    /// need not wait for it. It reduces in place: dx must be the caller's
    /// own.
    virtual Tensor enter(const Tensor& x);
    virtual Arriving enter_backward(const Tensor& dx);
    /// g, in place: `partial` must be the caller's own.
    virtual Tensor leave(const Tensor& partial);
    virtual Tensor leave_backward(const Tensor& dy);

    /// Which part of the sequence a rank holds outside regions; 0 where it
    /// holds all.
    virtual int sequence_part() const { return 0; }

    /// A layer outside regions says so of its parameters: all ranks hold
    /// the same, and must step alike.
    void replicate(Parameter& parameter,
                   SourceLine at = SourceLine::here());
    void replicate(const std::vector<Parameter*>& parameters,
                   SourceLine at = SourceLine::here());
    /// After the last backward of a step: makes the gradients of replicated
    /// parameters whole. Here they are: every rank has seen all tokens.
    virtual void complete_gradients() {}

    /// This rank's share of `count` rows, columns or heads; throws
    /// UsageError, which begins with `layer`, unless all get as many.
    std::int64_t share(const std::string& layer, const char* of,
                       std::int64_t count) const;

  protected:
    const std::vector<Parameter*>& replicated() const {
        return replicated_;
    }

  private:
    Device& device_;
    Communicator& group_;
    std::vector<Parameter*> replicated_;
};

}  // namespace lockstep
