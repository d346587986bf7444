#pragma once

#include <functional>
#include <type_traits>
#include <utility>

#include "src/device/device.hpp"

namespace lockstep {

/// A loss, and its gradient with respect to the prediction.
struct LossResult {
    Tensor loss;      ///< (1)
    Tensor gradient;  ///< of the prediction's shape
};

// Every loss is a mean over the batch times `weight`; the gradient has this weight, too.
// If a batch of B rows is cut into parts of B_i rows, use weight = B_i / B: then the
// parts' losses and gradients add up to those of the batch. The parts may be
// micro-batches or shards, of any size. An empty batch throws UsageError, because it has
// no mean.

/// Returns weight * mean over all elements of (prediction - target)^2. Both must have the
/// same shape.
LossResult mean_squared_error(Device& device, const Tensor& prediction,
                              const Tensor& target, double weight = 1,
                              SourceLine at = SourceLine::here());

/// Returns weight * mean over rows of -log softmax(logits)[target]. Logits are
/// (…, classes); targets are (…), i32, one for each row.
LossResult cross_entropy_loss(Device& device, const Tensor& logits, const Tensor& targets,
                              double weight = 1, SourceLine at = SourceLine::here());

/// Both throw a UsageError that begins with the loss's name. require_rows throws if the
/// batch is empty. require_targets throws unless one of the two tensors is flat, or
/// targets have the logits' first dimensions.
void require_rows(const char* loss, const Tensor& prediction, SourceLine at);
void require_targets(const char* loss, const Tensor& logits, const Tensor& targets,
                     SourceLine at);

/// Any of these losses, or a function with the same parameters; `at` may be missing:
///
///     const Loss loss = mean_squared_error;
///     const LossResult result = loss(device, prediction, target);
class Loss {
  public:
    template <typename Function>
    Loss(Function function) {
        if constexpr (std::is_invocable_v<Function&, Device&, const Tensor&,
                                          const Tensor&, double, SourceLine>)
            function_ = std::move(function);
        else
            function_ = [function = std::move(function)](
                            Device& device, const Tensor& prediction,
                            const Tensor& target, double weight, SourceLine) {
                return function(device, prediction, target, weight);
            };
    }

    LossResult operator()(Device& device, const Tensor& prediction, const Tensor& target,
                          double weight = 1, SourceLine at = SourceLine::here()) const {
        return function_(device, prediction, target, weight, at);
    }

  private:
    std::function<LossResult(Device&, const Tensor&, const Tensor&, double, SourceLine)>
        function_;
};

}  // namespace lockstep
