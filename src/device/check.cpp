#include "src/device/check.hpp"

#include <fmt/format.h>

namespace lockstep {

void Check::refuse(const std::string& what) const {
    const std::string sentence = fmt::format("{}: {}", operation_, what);
    throw at_.line == 0 ? UsageError(sentence) : UsageError(sentence, at_);
}

void Check::refuse_owner(const char* name, const Tensor& tensor) const {
    if (!tensor) refuse(fmt::format("{} is none; a tensor is expected", name));
    if (tensor.device() == nullptr)
        refuse(fmt::format("{} belongs to a device that is gone", name));
    refuse(fmt::format(
        "{} belongs to device {}, but device {} was asked; devices share nothing but "
        "messages",
        name, tensor.device()->index(), device_.index()));
}

void Check::real(const char* name, const Tensor& tensor) const {
    own(name, tensor);
    if (tensor.dtype() == DType::i32)
        refuse(fmt::format("{} is i32; f32 or f64 is expected", name));
    number(name, tensor);
}

void Check::number(const char* name, const Tensor& tensor) const {
    own(name, tensor);
    if (tensor.dtype() == DType::bf16 && device_.has_numbers())
        refuse(
            fmt::format("{} is bf16, which has no arithmetic yet; only runs that compute "
                        "shapes only may use it",
                        name));
}

void Check::dtype(const char* name, const Tensor& tensor, DType expected) const {
    own(name, tensor);
    if (tensor.dtype() != expected)
        refuse(fmt::format("{} is {}; {} is expected", name, name_of(tensor.dtype()),
                           name_of(expected)));
}

void Check::like(const char* name, const Tensor& tensor, const char* other_name,
                 const Tensor& other) const {
    own(name, tensor);
    const Shape& got = tensor.shape();
    const Shape& expected = other.shape();
    if (tensor.dtype() != other.dtype())
        refuse(fmt::format("{} is {}, but {} is {}", name, name_of(tensor.dtype()),
                           other_name, name_of(other.dtype())));
    if (got.rows() != expected.rows() || got.columns() != expected.columns())
        refuse(fmt::format("{} has shape {}, but {} has {}", name, got.text(), other_name,
                           expected.text()));
}

void Check::matrix(const char* name, const Tensor& tensor, std::int64_t rows,
                   std::int64_t columns) const {
    own(name, tensor);
    if (tensor.shape().rows() != rows || tensor.shape().columns() != columns)
        refuse(fmt::format("{} has shape {}; ({}, {}) is expected", name,
                           tensor.shape().text(), rows, columns));
}

void Check::row(const char* name, const Tensor& tensor, std::int64_t columns,
                DType expected) const {
    dtype(name, tensor, expected);
    if (tensor.shape().rows() != 1 || tensor.shape().columns() != columns)
        refuse(fmt::format("{} has shape {}; ({}) is expected", name,
                           tensor.shape().text(), columns));
}

void Check::count(const char* name, const Tensor& tensor, std::int64_t count,
                  DType expected) const {
    dtype(name, tensor, expected);
    if (tensor.elements() != count)
        refuse(fmt::format("{} has shape {}, that is {} elements; {} are expected", name,
                           tensor.shape().text(), tensor.elements(), count));
}

void Check::apart(const char* name, const Tensor& tensor, const char* other_name,
                  const Tensor& other) const {
    if (tensor.overlaps(other))
        refuse(
            fmt::format("{} and {} share memory; they must be apart", name, other_name));
}

void Check::same_or_apart(const char* name, const Tensor& tensor, const char* other_name,
                          const Tensor& other) const {
    const bool same = tensor.storage() == other.storage() &&
                      tensor.offset_bytes() == other.offset_bytes() &&
                      tensor.bytes() == other.bytes();
    if (!same && tensor.overlaps(other))
        refuse(
            fmt::format("{} and {} share memory in part; they must be the same or apart",
                        name, other_name));
}

}  // namespace lockstep
