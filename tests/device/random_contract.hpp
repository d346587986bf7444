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
    bench->random_uniform(tensor, stream, -2, 3, {offset});
    uniform.check(bench->download(tensor));
    bench->random_normal(tensor, stream, 1, 0.5, {offset});
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
    bench->random_normal(shard, stream, 0, 0.02, {5 * 7});
    REQUIRE(bench->download(shard) == bench->download(whole).rows(5, 3));
    bench->random_uniform(whole, stream, -1, 1);
    bench->random_uniform(shard, stream, -1, 1, {5 * 7});
    REQUIRE(bench->download(shard) == bench->download(whole).rows(5, 3));
}

TEST_CASE("Random values of some columns are those columns of the whole's, bit by bit",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t columns = GENERATE(1, 3, 10);
    const std::int64_t from = 10 - columns;
    Bench bench;
    const RandomStream stream(3, "weights");
    const Tensor whole = bench->empty({12, 10}, dtype);
    const Tensor columns_of_whole = bench->empty({5, columns}, dtype);
    const Tensor part = bench->empty({5, columns}, dtype);
    const RandomPart place{2 * 10 + from, 10};
    const auto same = [&] {
        bench->copy_columns(columns_of_whole, 0, whole.rows(2, 5), from, columns);
        REQUIRE(bench->download(part) == bench->download(columns_of_whole));
    };
    bench->random_normal(whole, stream, 0, 0.02);
    bench->random_normal(part, stream, 0, 0.02, place);
    same();
    bench->random_uniform(whole, stream, -1, 1);
    bench->random_uniform(part, stream, -1, 1, place);
    same();
    // Rows further apart than they are in the whole: every second one.
    bench->random_uniform(part, stream, -1, 1, {from, 20});
    const HostTensor values = bench->download(whole);
    for (std::int64_t i = 0; i < part.elements(); ++i)
        REQUIRE(bench->download(part).at(i) ==
                values.at(i / columns * 20 + from + i % columns));
}

}  // namespace lockstep::test
