#include "src/core/require.hpp"
#include "src/core/shape.hpp"
#include "tests/catch.hpp"

namespace lockstep {

TEST_CASE("A shape counts its elements and is a matrix of rows and columns", "[core]") {
    const Shape shape{2, 3, 4};
    REQUIRE(shape.dimensions() == 3);
    REQUIRE(shape.elements() == 24);
    REQUIRE(shape.matrix_rows() == 6);
    REQUIRE(shape.columns() == 4);
    REQUIRE(shape[1] == 3);
    REQUIRE(shape.text() == "(2, 3, 4)");
    REQUIRE(shape.with_first(7) == Shape{7, 3, 4});
    REQUIRE(shape.with_last(7) == Shape{2, 3, 7});
}

TEST_CASE("A scalar has one element, a vector one row, an empty shape none", "[core]") {
    REQUIRE(Shape{}.elements() == 1);
    REQUIRE(Shape{}.matrix_rows() == 1);
    REQUIRE(Shape{}.columns() == 1);
    REQUIRE(Shape{}.text() == "()");
    REQUIRE(Shape{5}.matrix_rows() == 1);
    REQUIRE(Shape{5}.columns() == 5);
    REQUIRE(Shape{5, 0}.elements() == 0);
    REQUIRE(Shape{5, 0}.matrix_rows() == 5);
}

TEST_CASE("Shapes are equal when all extents are", "[core]") {
    REQUIRE(Shape{2, 3} == Shape{2, 3});
    REQUIRE(Shape{2, 3} != Shape{3, 2});
    REQUIRE(Shape{2, 3} != Shape{2, 3, 1});
    REQUIRE(Shape{0} != Shape{});
}

TEST_CASE("Impossible shapes are refused", "[core][errors]") {
    REQUIRE_THROWS_WITH((Shape{1, 2, 3, 4, 5}),
                        "a shape has at most 4 dimensions, not 5");
    REQUIRE_THROWS_WITH((Shape{3, -1}),
                        "extent 1 of a shape is -1; it must not be negative");
    constexpr std::int64_t kMany = std::int64_t{1} << 32;
    REQUIRE_THROWS_AS((Shape{kMany, kMany}), UsageError);
    // An extent of zero does not hide the overflow.
    REQUIRE_THROWS_AS((Shape{0, kMany, kMany}), UsageError);
}

}  // namespace lockstep
