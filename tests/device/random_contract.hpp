#pragma once

#include "tests/device/support.hpp"

namespace lockstep::test {

TEST_CASE("Random tensors have the values of their stream", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t offset = GENERATE(std::int64_t{0}, 5, 123456789012);
    Bench bench;
    const RandomStream stream(3, "weights");
    const Tensor tensor = bench->empty({9, 11}, dtype);
    Expected uniform({9, 11}, dtype), normal({9, 11}, dtype);
    for (std::int64_t i = 0; i < 99; ++i) {
        const auto at = static_cast<std::uint64_t>(offset + i);
        uniform.add(-2 + 5 * stream.uniform(at), 5);
        normal.add(1 + 0.5 * stream.normal(at), 5);
    }
    bench->random_uniform(tensor, stream, -2, 3, offset);
    uniform.check(bench->download(tensor));
    bench->random_normal(tensor, stream, 1, 0.5, offset);
    normal.check(bench->download(tensor));
    bench->random_normal(bench->empty({0}, dtype), stream, 0, 1);
}

TEST_CASE("A shard's random values are the slice of the whole's, bit by bit", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    const RandomStream stream(3, "weights");
    const Tensor whole = bench->empty({12, 7}, dtype);
    const Tensor shard = bench->empty({3, 7}, dtype);
    bench->random_normal(whole, stream, 0, 0.02);
    bench->random_normal(shard, stream, 0, 0.02, 5 * 7);
    REQUIRE(bench->download(shard) == bench->download(whole).rows(5, 3));
    bench->random_uniform(whole, stream, -1, 1);
    bench->random_uniform(shard, stream, -1, 1, 5 * 7);
    REQUIRE(bench->download(shard) == bench->download(whole).rows(5, 3));
}

}  // namespace lockstep::test
