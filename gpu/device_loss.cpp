#include "gpu/device.hpp"
#include "gpu/kernels/softmax.hpp"
#include "gpu/kernels/vocabulary.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

template <>
void Device::compute(const ops::Softmax& op) {
    const Shape& shape = op.x.shape();
    with_real(op.x.dtype(), [&]<typename T>(T) {
        if (op.options.causal)
            launch_causal_softmax(
                stream_.get(), op.y.data<T>(), op.x.data<const T>(), shape.rows(),
                shape.columns(),
                {shape[shape.dimensions() - 2], op.options.queries, op.options.keys});
        else
            launch_softmax(stream_.get(), op.y.data<T>(), op.x.data<const T>(),
                           shape.rows(), shape.columns());
    });
}

template <>
void Device::compute(const ops::SoftmaxBackward& op) {
    with_real(op.y.dtype(), [&]<typename T>(T) {
        launch_softmax_backward(stream_.get(), op.dx.data<T>(), op.y.data<const T>(),
                                op.dy.data<const T>(), op.y.shape().rows(),
                                op.y.shape().columns());
    });
}

template <>
void Device::compute(const ops::CrossEntropy& op) {
    with_real(op.logits.dtype(), [&]<typename T>(T) {
        launch_cross_entropy(stream_.get(), op.losses.data<T>(),
                             op.logits.data<const T>(),
                             op.targets.data<const std::int32_t>(),
                             op.logits.shape().rows(), op.logits.shape().columns());
    });
}

template <>
void Device::compute(const ops::CrossEntropyBackward& op) {
    with_real(op.logits.dtype(), [&]<typename T>(T) {
        launch_cross_entropy_backward(
            stream_.get(), op.d_logits.data<T>(), op.logits.data<const T>(),
            op.targets.data<const std::int32_t>(), op.logits.shape().rows(),
            op.logits.shape().columns(), static_cast<T>(op.factor));
    });
}

template <>
void Device::compute(const ops::SquaredError& op) {
    const Tensor workspace = workspace_for_reduction();
    with_real(op.prediction.dtype(), [&]<typename T>(T) {
        launch_squared_error(stream_.get(), workspace.bytes_begin(), op.loss.data<T>(),
                             op.prediction.data<const T>(), op.target.data<const T>(),
                             op.prediction.elements());
    });
}

template <>
void Device::compute(const ops::SquaredErrorBackward& op) {
    with_real(op.prediction.dtype(), [&]<typename T>(T) {
        launch_squared_error_backward(stream_.get(), op.d_prediction.data<T>(),
                                      op.prediction.data<const T>(),
                                      op.target.data<const T>(), op.prediction.elements(),
                                      static_cast<T>(2 * op.factor));
    });
}

namespace {

template <typename T>
ShardLogits<T> operands(const Tensor& logits, const VocabularyShard& shard) {
    return {logits.data<const T>(), logits.shape().rows(), logits.shape().columns(),
            shard.first, shard.whole};
}

}  // namespace

template <>
void Device::compute(const ops::RowMaximum& op) {
    with_real(op.logits.dtype(), [&]<typename T>(T) {
        launch_row_maximum(stream_.get(), op.maximum.data<T>(),
                           operands<T>(op.logits, op.shard));
    });
}

template <>
void Device::compute(const ops::CrossEntropyParts& op) {
    with_real(op.logits.dtype(), [&]<typename T>(T) {
        launch_cross_entropy_parts(
            stream_.get(), op.parts.data<T>(), operands<T>(op.logits, op.shard),
            op.targets.data<const std::int32_t>(), op.maximum.data<const T>());
    });
}

template <>
void Device::compute(const ops::CrossEntropyOfParts& op) {
    with_real(op.losses.dtype(), [&]<typename T>(T) {
        launch_cross_entropy_of_parts(stream_.get(), op.losses.data<T>(),
                                      op.maximum.data<const T>(),
                                      op.parts.data<const T>(), op.losses.elements());
    });
}

template <>
void Device::compute(const ops::CrossEntropyBackwardOfParts& op) {
    with_real(op.logits.dtype(), [&]<typename T>(T) {
        launch_cross_entropy_backward_of_parts(
            stream_.get(), op.d_logits.data<T>(), operands<T>(op.logits, op.shard),
            op.targets.data<const std::int32_t>(), op.maximum.data<const T>(),
            op.parts.data<const T>(), static_cast<T>(op.factor));
    });
}

}  // namespace lockstep::gpu
