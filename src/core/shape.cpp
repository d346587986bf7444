#include "src/core/shape.hpp"

#include <limits>

#include "src/core/no_count.hpp"
#include "src/core/require.hpp"

namespace lockstep {

Shape::Shape(std::initializer_list<std::int64_t> extents)
    : Shape(extents.begin(), static_cast<int>(extents.size())) {}

Shape::Shape(const std::int64_t* extents, int dimensions) : dimensions_(dimensions) {
    require(dimensions <= kMaxDimensions, "a shape has at most {} dimensions, not {}",
            kMaxDimensions, dimensions);
    std::int64_t elements = 1;
    for (int d = 0; d < dimensions; ++d) {
        require(extents[d] >= 0, "extent {} of a shape is {}; it must not be negative{}",
                d, extents[d], hint_of_no_count(extents[d]));
        require(extents[d] == 0 || elements <= std::numeric_limits<std::int64_t>::max() /
                                                   16 / extents[d],
                "a shape with more elements than can be addressed");
        if (extents[d] > 0) elements *= extents[d];
        extents_[d] = extents[d];
    }
}

Shape Shape::with_first(std::int64_t extent) const {
    Shape shape = *this;
    shape.extents_[0] = extent;
    return {shape.extents_.data(), dimensions_};
}

Shape Shape::with_last(std::int64_t extent) const {
    Shape shape = *this;
    shape.extents_[dimensions_ - 1] = extent;
    return {shape.extents_.data(), dimensions_};
}

std::string Shape::text() const {
    std::string text = "(";
    for (int d = 0; d < dimensions_; ++d) {
        if (d > 0) text += ", ";
        text += std::to_string((*this)[d]);
    }
    return text + ")";
}

}  // namespace lockstep
