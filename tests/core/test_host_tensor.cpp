#include <cstring>

#include "src/core/host_tensor.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"

namespace lockstep {

TEST_CASE("A host tensor begins as zeros and keeps the values that are set", "[core]") {
    HostTensor zeros({2, 2}, DType::f32);
    REQUIRE(zeros == HostTensor::of<float>({2, 2}, std::vector<float>{0, 0, 0, 0}));
    zeros.set(3, 1.5);
    REQUIRE(zeros.values<float>()[3] == 1.5f);
    REQUIRE(zeros.at(3) == 1.5);
    REQUIRE(zeros.bytes() == 16);
    REQUIRE(HostTensor().elements() == 0);
}

TEST_CASE("Host tensors convert between types and round", "[core]") {
    const HostTensor wide = HostTensor::of<double>({3}, std::vector{0.1, -2.0, 1e10});
    const HostTensor narrow = wide.as(DType::f32);
    REQUIRE(narrow.dtype() == DType::f32);
    REQUIRE(narrow.at(0) == double{0.1f});
    REQUIRE(narrow.as(DType::f64).at(1) == -2);
    REQUIRE(wide.as(DType::f64) == wide);
    REQUIRE(HostTensor::of<std::int32_t>({1}, std::vector{7}).as(DType::f64).at(0) == 7);
}

TEST_CASE("A bf16 is the upper half of an f32", "[core]") {
    HostTensor half({1}, DType::bf16);
    const std::uint16_t bits = 0xc040;
    std::memcpy(half.data(), &bits, sizeof bits);
    REQUIRE(half.at(0) == -3);
    half.set(0, 1.0 / 3);
    REQUIRE(half.at(0) == 0.333984375);
}

TEST_CASE("Rows of a host tensor are a copy", "[core]") {
    HostTensor tensor =
        HostTensor::of<std::int32_t>({3, 2}, std::vector{1, 2, 3, 4, 5, 6});
    const HostTensor rows = tensor.rows(1, 2);
    tensor.set(2, 0);
    REQUIRE(rows == HostTensor::of<std::int32_t>({2, 2}, std::vector{3, 4, 5, 6}));
    REQUIRE(tensor.rows(3, 0).shape() == Shape{0, 2});
    REQUIRE(HostTensor({0, 2}, DType::f32).rows(0, 0).elements() == 0);
}

TEST_CASE("Host tensors refuse wrong counts, types and rows", "[core][errors]") {
    REQUIRE_THROWS_WITH(HostTensor::of<float>({2}, std::vector<float>{1}),
                        "a tensor of shape (2) has 2 elements, but 1 values were given");
    HostTensor tensor({2}, DType::f32);
    REQUIRE_THROWS_WITH(tensor.values<double>(), "a tensor of f32 was read as f64");
    REQUIRE_THROWS_AS(tensor.rows(1, 2), UsageError);
    REQUIRE_THROWS_AS(tensor.rows(-1, 1), UsageError);
}

}  // namespace lockstep
