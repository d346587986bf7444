#pragma once

#include <functional>
#include <type_traits>
#include <utility>

#include "src/device/device.hpp"

namespace lockstep {

/// A loss, and its derivative by the prediction.
struct LossResult {
    Tensor loss;      ///< (1)
    Tensor gradient;  ///< of the prediction's shape
};

// Every loss is a mean over the batch times `weight`, and the gradient is of exactly
// that. With weight = B_i / B the losses of parts of a batch, B_i rows of B each, and
// their gradients, add up to those of the whole: for micro-batches and shards, of equal
// size or not. An empty batch throws UsageError, since its mean is nothing.

/// weight * mean over all elements of (prediction - target)^2. Both of one shape.
LossResult mean_squared_error(Device& device, const Tensor& prediction,
                              const Tensor& target, double weight = 1,
                              SourceLine at = SourceLine::here());

/// weight * mean over rows of -log softmax(logits)[target]. Logits (…, classes), and
/// targets (…), i32: one for each row.
LossResult cross_entropy_loss(Device& device, const Tensor& logits, const Tensor& targets,
                              double weight = 1, SourceLine at = SourceLine::here());

/// Throw UsageError, which begins with the loss's name: where the batch is empty; unless
/// targets are in the logits' first dimensions, or either of the two is flat.
void require_rows(const char* loss, const Tensor& prediction, SourceLine at);
void require_targets(const char* loss, const Tensor& logits, const Tensor& targets,
                     SourceLine at);

/// Any of them, or a function of the same arguments, with or without the line:
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
