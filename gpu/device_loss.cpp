#include "gpu/device.hpp"
#include "gpu/kernels/softmax.hpp"
#include "gpu/kernels/vocabulary.hpp"

namespace lockstep::gpu {

template <>
void Device::compute(const ops::Softmax& op) {
    const Shape& shape = op.x.shape();
    if (op.options.causal)
        launch_causal_softmax(
            stream_.get(), op.y, op.x, shape.matrix_rows(), shape.columns(),
            {shape[shape.dimensions() - 2], op.options.queries, op.options.keys});
    else
        launch_softmax(stream_.get(), op.y, op.x, shape.matrix_rows(), shape.columns());
}

template <>
void Device::compute(const ops::SoftmaxBackward& op) {
    launch_softmax_backward(stream_.get(), op.dx, op.y, op.dy, op.y.shape().matrix_rows(),
                            op.y.shape().columns());
}

template <>
void Device::compute(const ops::LogSumExp& op) {
    launch_log_sum_exp(stream_.get(), op.y, op.x, op.x.shape().matrix_rows(),
                       op.x.shape().columns());
}

template <>
void Device::compute(const ops::NormalizeRows& op) {
    launch_normalize_rows(stream_.get(), op.y, op.x, op.x.shape().matrix_rows(),
                          op.x.shape().columns());
}

template <>
void Device::compute(const ops::NormalizeRowsBackward& op) {
    launch_normalize_rows_backward(stream_.get(), op.dx, op.x, op.dy,
                                   op.x.shape().matrix_rows(), op.x.shape().columns());
}

template <>
void Device::compute(const ops::CrossEntropy& op) {
    launch_cross_entropy(stream_.get(), op.losses, op.logits,
                         op.targets.data<const std::int32_t>(),
                         op.logits.shape().matrix_rows(), op.logits.shape().columns());
}

template <>
void Device::compute(const ops::CrossEntropyBackward& op) {
    launch_cross_entropy_backward(
        stream_.get(), op.d_logits, op.logits, op.targets.data<const std::int32_t>(),
        op.logits.shape().matrix_rows(), op.logits.shape().columns(), op.factor);
}

template <>
void Device::compute(const ops::SquaredError& op) {
    const Tensor workspace = workspace_for_reduction();
    launch_squared_error(stream_.get(), workspace.bytes_begin(), op.loss, op.prediction,
                         op.target, op.prediction.elements());
}

template <>
void Device::compute(const ops::SquaredErrorBackward& op) {
    launch_squared_error_backward(stream_.get(), op.d_prediction, op.prediction,
                                  op.target, op.prediction.elements(), 2 * op.factor);
}

namespace {

ShardLogits operands(const Tensor& logits, const VocabularyShard& shard) {
    return {logits, logits.shape().matrix_rows(), logits.shape().columns(), shard.first,
            shard.whole};
}

}  // namespace

template <>
void Device::compute(const ops::RowMaximum& op) {
    launch_row_maximum(stream_.get(), op.maximum, operands(op.logits, op.shard));
}

template <>
void Device::compute(const ops::CrossEntropyParts& op) {
    launch_cross_entropy_parts(stream_.get(), op.parts, operands(op.logits, op.shard),
                               op.targets.data<const std::int32_t>(), op.maximum);
}

template <>
void Device::compute(const ops::CrossEntropyOfParts& op) {
    launch_cross_entropy_of_parts(stream_.get(), op.losses, op.maximum, op.parts,
                                  op.losses.elements());
}

template <>
void Device::compute(const ops::CrossEntropyBackwardOfParts& op) {
    launch_cross_entropy_backward_of_parts(
        stream_.get(), op.d_logits, operands(op.logits, op.shard),
        op.targets.data<const std::int32_t>(), op.maximum, op.parts, op.factor);
}

}  // namespace lockstep::gpu
