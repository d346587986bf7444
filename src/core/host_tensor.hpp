#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/core/dtype.hpp"
#include "src/core/shape.hpp"

namespace lockstep {

/// A tensor on the host, contiguous and row-major. Host tensors are uploaded to devices,
/// downloaded from them, kept in records and written to files.
class HostTensor {
  public:
    HostTensor() : HostTensor(Shape{0}, DType::f32) {}
    /// All zeros.
    HostTensor(Shape shape, DType dtype);

    /// Copies `values` into a new tensor; T is float, double or int32_t. Throws
    /// UsageError if the number of values does not match the shape.
    template <typename T>
    static HostTensor of(Shape shape, std::span<const T> values);
    template <typename T>
    static HostTensor of(Shape shape, const std::vector<T>& values) {
        return of<T>(shape, std::span<const T>(values));
    }

    const Shape& shape() const { return shape_; }
    DType dtype() const { return dtype_; }
    std::int64_t elements() const { return shape_.elements(); }
    std::int64_t bytes() const { return elements() * bytes_of(dtype_); }

    /// The elements as T; throws UsageError if T is not the dtype.
    template <typename T>
    std::span<T> values();
    template <typename T>
    std::span<const T> values() const;

    std::byte* data() { return data_.data(); }
    const std::byte* data() const { return data_.data(); }

    /// Element `index` (row-major) as a double, whatever the dtype. Throws UsageError if
    /// there is no such element.
    double at(std::int64_t index) const;
    void set(std::int64_t index, double value);

    /// Returns the values in another dtype, rounded if necessary.
    HostTensor as(DType dtype) const;

    /// Moves the values into a tensor of another shape with the same number of elements.
    HostTensor reshaped(Shape shape) &&;
    /// Rows [begin, begin + count) of the first dimension, copied.
    HostTensor rows(std::int64_t begin, std::int64_t count) const;

    /// Same shape, dtype and bits.
    bool operator==(const HostTensor& other) const = default;

  private:
    Shape shape_;
    DType dtype_;
    std::vector<std::byte> data_;
};

}  // namespace lockstep
