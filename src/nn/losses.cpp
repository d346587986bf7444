#include "src/nn/losses.hpp"

#include "src/core/require.hpp"

namespace lockstep {

namespace {

Shape with_last_dropped(const Shape& shape) {
    std::int64_t extents[Shape::kMaxDimensions] = {};
    const int dimensions = shape.dimensions() > 0 ? shape.dimensions() - 1 : 0;
    for (int d = 0; d < dimensions; ++d)
        extents[d] = shape[d];
    return {extents, dimensions};
}

}  // namespace

void require_rows(const char* loss, const Tensor& prediction, SourceLine at) {
    require(prediction.elements() > 0, at,
            "{} of a batch of shape {}: the mean of an empty batch is not defined", loss,
            prediction.shape());
}

void require_targets(const char* loss, const Tensor& logits, const Tensor& targets,
                     SourceLine at) {
    const Shape& shape = logits.shape();
    const Shape& given = targets.shape();
    const bool flat = given.dimensions() <= 1 || shape.dimensions() <= 2;
    require(flat || with_last_dropped(shape) == given, at,
            "{}: targets have shape {} for logits of shape {}; the logits' shape without "
            "its last dimension is expected",
            loss, given.text(), shape);
}

// loss = weight / n * sum (p - t)^2,  gradient = weight / n * 2 (p - t),  n elements
LossResult mean_squared_error(Device& device, const Tensor& prediction,
                              const Tensor& target, double weight, SourceLine at) {
    require_rows("mean_squared_error", prediction, at);
    const double factor = weight / static_cast<double>(prediction.elements());
    Tensor loss = device.squared_error(prediction, target, at);
    device.scale(loss, factor, at);
    return {std::move(loss),
            device.squared_error_backward(prediction, target, factor, at)};
}

// loss = weight / n * sum -log softmax(logits)[target],
// gradient = weight / n * (softmax(logits) - one_hot(targets)),  n rows
LossResult cross_entropy_loss(Device& device, const Tensor& logits, const Tensor& targets,
                              double weight, SourceLine at) {
    require_rows("cross_entropy_loss", logits, at);
    require_targets("cross_entropy_loss", logits, targets, at);
    const double factor = weight / static_cast<double>(logits.shape().matrix_rows());
    Tensor loss = device.empty({1}, computed_in(logits.dtype()), at);
    device.sum(loss, device.cross_entropy(logits, targets, at), /*accumulate=*/false, at);
    device.scale(loss, factor, at);
    return {std::move(loss), device.cross_entropy_backward(logits, targets, factor, at)};
}

}  // namespace lockstep
