#include <cmath>

#include "gpu/check.hpp"
#include "gpu/device.hpp"
#include "gpu/kernels/move.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

void Device::run_beside(const Tensor& source, FunctionRef<void()> operation) {
    auto* other = static_cast<Device*>(source.device());
    if (other == this) return operation();
    // Run it after the other device's earlier operations and before its later operations.
    stream_.wait_for(other->stream_);
    operation();
    other->stream_.wait_for(stream_);
}

namespace {

/// Calls f with a value of the type, which may be i32.
template <typename F>
void with_stored(DType dtype, const F& f) {
    if (dtype == DType::i32) return f(std::int32_t{});
    with_floating(dtype, f);
}

}  // namespace

template <>
void Device::compute(const ops::Fill& op) {
    if (op.value == 0 && !std::signbit(op.value)) {
        GPU_CHECK(cudaMemsetAsync(op.destination.bytes_begin(), 0,
                                  static_cast<std::size_t>(op.destination.bytes()),
                                  stream_.get()));
        return;
    }
    with_stored(op.destination.dtype(), [&]<typename S>(S) {
        launch_fill(stream_.get(), op.destination.data<S>(), op.destination.elements(),
                    static_cast<Computed<S>>(op.value));
    });
}

template <>
void Device::compute(const ops::Copy& op) {
    if (op.destination.bytes_begin() == op.source.bytes_begin()) return;
    run_beside(op.source, [&] {
        GPU_CHECK(cudaMemcpyAsync(op.destination.bytes_begin(), op.source.bytes_begin(),
                                  static_cast<std::size_t>(op.source.bytes()),
                                  cudaMemcpyDeviceToDevice, stream_.get()));
    });
}

template <>
void Device::compute(const ops::CopyColumns& op) {
    if (op.count == 0) return;
    const std::int64_t bytes = bytes_of(op.source.dtype());
    const RowsOf origin{op.source.bytes_begin() + op.from * bytes,
                        op.source.shape().columns() * bytes};
    launch_copy_rows(stream_.get(), op.destination.bytes_begin() + op.to * bytes,
                     op.destination.shape().columns() * bytes, origin, {},
                     op.source.shape().matrix_rows(), op.count * bytes, bytes);
}

template <>
void Device::compute(const ops::Combine& op) {
    run_beside(op.source, [&] {
        with_stored(op.destination.dtype(), [&]<typename T>(T) {
            launch_combine(stream_.get(), op.destination.data<T>(),
                           op.source.data<const T>(), op.destination.elements(),
                           op.reduction);
        });
    });
}

template <>
void Device::compute(const ops::Add& op) {
    if (op.factor == 1)
        return compute(ops::Combine{op.destination, op.source, Reduction::sum});
    const std::int64_t elements = op.destination.elements();
    if (op.destination.dtype() == DType::i32) {
        // Unsigned integers, because they wrap around.
        const auto factor =
            static_cast<std::uint32_t>(static_cast<std::int32_t>(op.factor));
        return launch_add(stream_.get(), op.destination.data<std::uint32_t>(),
                          op.source.data<const std::uint32_t>(), elements, factor);
    }
    with_floating(op.destination.dtype(), [&]<typename S>(S) {
        launch_add(stream_.get(), op.destination.data<S>(), op.source.data<const S>(),
                   elements, static_cast<Computed<S>>(op.factor));
    });
}

template <>
void Device::compute(const ops::Scale& op) {
    const std::int64_t elements = op.destination.elements();
    if (op.destination.dtype() == DType::i32)
        return launch_scale_whole(stream_.get(), op.destination.data<std::int32_t>(),
                                  elements, op.factor);
    with_floating(op.destination.dtype(), [&]<typename S>(S) {
        launch_scale(stream_.get(), op.destination.data<S>(), elements,
                     static_cast<Computed<S>>(op.factor));
    });
}

template <>
void Device::compute(const ops::ScaleByTensor& op) {
    launch_scale_by_tensor(stream_.get(), op.destination, op.factor,
                           op.destination.elements());
}

template <>
void Device::compute(const ops::Multiply& op) {
    compute(ops::Combine{op.destination, op.source, Reduction::product});
}

template <>
void Device::compute(const ops::Cast& op) {
    run_beside(op.source, [&] {
        with_floating(op.destination.dtype(), [&]<typename To>(To) {
            with_floating(op.source.dtype(), [&]<typename From>(From) {
                launch_cast(stream_.get(), op.destination.data<To>(),
                            op.source.data<const From>(), op.source.elements());
            });
        });
    });
}

template <>
void Device::compute(const ops::Sum& op) {
    const Tensor workspace = workspace_for_reduction();
    const auto add_up = [&]<typename S>(S) {
        launch_sum(stream_.get(), workspace.bytes_begin(),
                   op.destination.data<Computed<S>>(), op.source.data<const S>(),
                   op.source.elements(), op.accumulate);
    };
    if (op.source.dtype() == DType::i32)
        add_up(std::uint32_t{});
    else
        with_floating(op.source.dtype(), add_up);
}

template <>
void Device::compute(const ops::SumOfSquares& op) {
    const Tensor workspace = workspace_for_reduction();
    launch_sum_of_squares(stream_.get(), workspace.bytes_begin(), op.destination, op.x,
                          op.x.elements());
}

}  // namespace lockstep::gpu
