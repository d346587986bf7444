#include "gpu/device.hpp"
#include "gpu/kernels/vocabulary.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

namespace {

template <typename T>
ShardLogits<T> operands(const Tensor& logits, const VocabularyShard& shard) {
    return {logits.data<const T>(), logits.shape().rows(), logits.shape().columns(),
            shard.first, shard.whole};
}

}  // namespace

void Device::do_row_maximum(const Tensor& maximum, const Tensor& logits,
                            const VocabularyShard& shard) {
    with_real(logits.dtype(), [&]<typename T>(T) {
        launch_row_maximum(stream_.get(), maximum.data<T>(), operands<T>(logits, shard));
    });
}

void Device::do_cross_entropy_parts(const Tensor& parts, const Tensor& logits,
                                    const Tensor& targets, const Tensor& maximum,
                                    const VocabularyShard& shard) {
    check_indices(targets, shard.whole);
    with_real(logits.dtype(), [&]<typename T>(T) {
        launch_cross_entropy_parts(
            stream_.get(), parts.data<T>(), operands<T>(logits, shard),
            targets.data<const std::int32_t>(), maximum.data<const T>());
    });
}

void Device::do_cross_entropy_of_parts(const Tensor& losses, const Tensor& maximum,
                                       const Tensor& parts) {
    with_real(losses.dtype(), [&]<typename T>(T) {
        launch_cross_entropy_of_parts(stream_.get(), losses.data<T>(),
                                      maximum.data<const T>(), parts.data<const T>(),
                                      losses.elements());
    });
}

void Device::do_cross_entropy_backward_of_parts(const Tensor& d_logits,
                                                const Tensor& logits,
                                                const Tensor& targets,
                                                const Tensor& maximum,
                                                const Tensor& parts, double factor,
                                                const VocabularyShard& shard) {
    check_indices(targets, shard.whole);
    with_real(logits.dtype(), [&]<typename T>(T) {
        launch_cross_entropy_backward_of_parts(
            stream_.get(), d_logits.data<T>(), operands<T>(logits, shard),
            targets.data<const std::int32_t>(), maximum.data<const T>(),
            parts.data<const T>(), static_cast<T>(factor));
    });
}

}  // namespace lockstep::gpu
