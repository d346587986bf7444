#include "src/core/host_tensor.hpp"

#include <algorithm>
#include <cstring>

#include "src/core/no_count.hpp"
#include "src/core/require.hpp"

namespace lockstep {

HostTensor::HostTensor(Shape shape, DType dtype)
    : shape_(shape),
      dtype_(dtype),
      data_(static_cast<std::size_t>(shape.elements() * bytes_of(dtype))) {}

template <typename T>
HostTensor HostTensor::of(Shape shape, std::span<const T> values) {
    require(static_cast<std::int64_t>(values.size()) == shape.elements(),
            "a tensor of shape {} has {} elements, but {} values were given", shape,
            shape.elements(), values.size());
    HostTensor tensor(shape, dtype_of<T>());
    if (!values.empty()) std::memcpy(tensor.data(), values.data(), values.size_bytes());
    return tensor;
}

template <typename T>
std::span<T> HostTensor::values() {
    require(dtype_ == dtype_of<T>(), "a tensor of {} was read as {}", dtype_,
            dtype_of<T>());
    return {reinterpret_cast<T*>(data_.data()), static_cast<std::size_t>(elements())};
}

template <typename T>
std::span<const T> HostTensor::values() const {
    return const_cast<HostTensor*>(this)->values<T>();
}

namespace {

void require_element(const HostTensor& tensor, std::int64_t index) {
    require(index >= 0 && index < tensor.elements(),
            "element {} of a tensor of shape {}, which has {}", index, tensor.shape(),
            tensor.elements());
}

}  // namespace

double HostTensor::at(std::int64_t index) const {
    require_element(*this, index);
    const std::byte* element = data_.data() + index * bytes_of(dtype_);
    const auto read = [&]<typename T>(T value) {
        std::memcpy(&value, element, sizeof value);
        return static_cast<double>(value);
    };
    switch (dtype_) {
        case DType::f32:
            return read(float{});
        case DType::f64:
            return read(double{});
        case DType::i32:
            return read(std::int32_t{});
        case DType::bf16:
            return read(Bf16{});
    }
    return 0;
}

void HostTensor::set(std::int64_t index, double value) {
    require_element(*this, index);
    std::byte* element = data_.data() + index * bytes_of(dtype_);
    const auto write = [&](auto typed) { std::memcpy(element, &typed, sizeof typed); };
    switch (dtype_) {
        case DType::f32:
            return write(static_cast<float>(value));
        case DType::f64:
            return write(value);
        case DType::i32:
            return write(static_cast<std::int32_t>(value));
        case DType::bf16:
            return write(Bf16(value));
    }
}

HostTensor HostTensor::as(DType dtype) const {
    if (dtype == dtype_) return *this;
    HostTensor converted(shape_, dtype);
    for (std::int64_t i = 0; i < elements(); ++i)
        converted.set(i, at(i));
    return converted;
}

HostTensor HostTensor::reshaped(Shape shape) && {
    require(shape.elements() == elements(),
            "{} cannot be reshaped to {}: the numbers of elements differ", shape_, shape);
    shape_ = shape;
    return std::move(*this);
}

HostTensor HostTensor::rows(std::int64_t begin, std::int64_t count) const {
    require(
        shape_.dimensions() > 0 && begin >= 0 && count >= 0 && count <= shape_[0] - begin,
        "a tensor of shape {} has no {} rows from row {} on{}", shape_, count, begin,
        hint_of_no_count(std::min(begin, count)));
    HostTensor part(shape_.with_first(count), dtype_);
    const std::int64_t row_bytes = shape_[0] == 0 ? 0 : bytes() / shape_[0];
    if (part.bytes() > 0)
        std::memcpy(part.data(), data() + begin * row_bytes,
                    static_cast<std::size_t>(part.bytes()));
    return part;
}

template HostTensor HostTensor::of<float>(Shape, std::span<const float>);
template HostTensor HostTensor::of<double>(Shape, std::span<const double>);
template HostTensor HostTensor::of<std::int32_t>(Shape, std::span<const std::int32_t>);
template std::span<float> HostTensor::values<float>();
template std::span<double> HostTensor::values<double>();
template std::span<std::int32_t> HostTensor::values<std::int32_t>();
template std::span<const float> HostTensor::values<float>() const;
template std::span<const double> HostTensor::values<double>() const;
template std::span<const std::int32_t> HostTensor::values<std::int32_t>() const;
template std::span<const Bf16> HostTensor::values<Bf16>() const;

}  // namespace lockstep
