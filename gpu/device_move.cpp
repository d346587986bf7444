#include <cmath>

#include "gpu/check.hpp"
#include "gpu/device.hpp"
#include "gpu/kernels/move.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

void Device::beside(const Tensor& source, FunctionRef<void()> operation) {
    auto* other = static_cast<Device*>(source.device());
    if (other == this) return operation();
    // After what the other device was asked for before, and before what it is asked next.
    stream_.wait_for(other->stream_);
    operation();
    other->stream_.wait_for(stream_);
}

void Device::do_fill(const Tensor& destination, double value) {
    if (value == 0 && !std::signbit(value)) {
        GPU_CHECK(cudaMemsetAsync(destination.bytes_begin(), 0,
                                  static_cast<std::size_t>(destination.bytes()),
                                  stream_.get()));
        return;
    }
    with_number(destination.dtype(), [&]<typename T>(T) {
        launch_fill(stream_.get(), destination.data<T>(), destination.elements(),
                    static_cast<T>(value));
    });
}

void Device::do_copy(const Tensor& destination, const Tensor& source) {
    if (destination.bytes_begin() == source.bytes_begin()) return;
    beside(source, [&] {
        GPU_CHECK(cudaMemcpyAsync(destination.bytes_begin(), source.bytes_begin(),
                                  static_cast<std::size_t>(source.bytes()),
                                  cudaMemcpyDeviceToDevice, stream_.get()));
    });
}

void Device::do_copy_columns(const Tensor& destination, std::int64_t to,
                             const Tensor& source, std::int64_t from,
                             std::int64_t count) {
    if (count == 0) return;
    const std::int64_t bytes = bytes_of(source.dtype());
    const RowsOf origin{source.bytes_begin() + from * bytes,
                        source.shape().columns() * bytes};
    launch_copy_rows(stream_.get(), destination.bytes_begin() + to * bytes,
                     destination.shape().columns() * bytes, origin, {},
                     source.shape().rows(), count * bytes, bytes);
}

void Device::do_add(const Tensor& destination, const Tensor& source, double factor) {
    if (factor == 1) return do_combine(destination, source, Reduction::sum);
    const std::int64_t elements = destination.elements();
    if (destination.dtype() == DType::i32) {
        // Unsigned integers wrap around.
        const auto by = static_cast<std::uint32_t>(static_cast<std::int32_t>(factor));
        return launch_add(stream_.get(), destination.data<std::uint32_t>(),
                          source.data<const std::uint32_t>(), elements, by);
    }
    with_real(destination.dtype(), [&]<typename T>(T) {
        launch_add(stream_.get(), destination.data<T>(), source.data<const T>(), elements,
                   static_cast<T>(factor));
    });
}

void Device::do_scale(const Tensor& destination, double factor) {
    const std::int64_t elements = destination.elements();
    if (destination.dtype() == DType::i32)
        return launch_scale_whole(stream_.get(), destination.data<std::int32_t>(),
                                  elements, factor);
    with_real(destination.dtype(), [&]<typename T>(T) {
        launch_scale(stream_.get(), destination.data<T>(), elements,
                     static_cast<T>(factor));
    });
}

void Device::do_multiply(const Tensor& destination, const Tensor& source) {
    do_combine(destination, source, Reduction::product);
}

void Device::do_combine(const Tensor& destination, const Tensor& source,
                        Reduction reduction) {
    beside(source, [&] {
        with_number(destination.dtype(), [&]<typename T>(T) {
            launch_combine(stream_.get(), destination.data<T>(), source.data<const T>(),
                           destination.elements(), reduction);
        });
    });
}

void Device::do_sum(const Tensor& destination, const Tensor& source, bool accumulate) {
    const Tensor workspace = workspace_for_reduction();
    const auto add_up = [&]<typename T>(T) {
        launch_sum(stream_.get(), workspace.bytes_begin(), destination.data<T>(),
                   source.data<const T>(), source.elements(), accumulate);
    };
    if (source.dtype() == DType::i32)
        add_up(std::uint32_t{});
    else
        with_real(source.dtype(), add_up);
}

}  // namespace lockstep::gpu
