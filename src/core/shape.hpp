#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include <fmt/core.h>

namespace lockstep {

/// The extents of a tensor, outermost first; row-major. A tensor has up to four
/// dimensions, a scalar has none.
class Shape {
  public:
    static constexpr int kMaxDimensions = 4;

    Shape() = default;
    /// Throws UsageError for more than four extents or a negative extent.
    Shape(std::initializer_list<std::int64_t> extents);
    Shape(const std::int64_t* extents, int dimensions);

    /// One dimension of `extent`, which is not negative.
    static Shape flat(std::int64_t extent) {
        Shape shape;
        shape.extents_[0] = extent;
        shape.dimensions_ = 1;
        return shape;
    }

    int dimensions() const { return dimensions_; }
    std::int64_t operator[](int dimension) const { return extents_[dimension]; }

    std::int64_t elements() const {
        std::int64_t product = 1;
        for (int d = 0; d < dimensions_; ++d)
            product *= (*this)[d];
        return product;
    }

    /// As a matrix: columns are the last extent, rows the product of the other extents.
    std::int64_t columns() const {
        return dimensions_ == 0 ? 1 : (*this)[dimensions_ - 1];
    }
    std::int64_t matrix_rows() const {
        std::int64_t product = 1;
        for (int d = 0; d + 1 < dimensions_; ++d)
            product *= (*this)[d];
        return product;
    }

    /// Return the shape with another first or last extent.
    Shape with_first(std::int64_t extent) const;
    Shape with_last(std::int64_t extent) const;

    bool operator==(const Shape&) const = default;

    /// "(25, 10)"; "()" for a scalar.
    std::string text() const;

  private:
    std::array<std::int64_t, kMaxDimensions> extents_{};
    int dimensions_ = 0;
};

}  // namespace lockstep

/// Prints a shape as its text(). Does not use fmt::format_to: every source that prints a
/// shape would then compile all of fmt.
template <>
struct fmt::formatter<lockstep::Shape> {
    constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
    template <typename Context>
    auto format(const lockstep::Shape& shape, Context& context) const {
        const std::string text = shape.text();
        return std::copy(text.begin(), text.end(), context.out());
    }
};
