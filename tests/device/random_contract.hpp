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

TEST_CASE("A shard's random values equal its slice of the whole, bit by bit", kTags) {
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

TEST_CASE("Random values of some columns equal those columns of the whole, bit by bit",
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
    // The part's rows are every second row of the whole.
    bench->random_uniform(part, stream, -1, 1, {from, 20});
    const HostTensor values = bench->download(whole);
    for (std::int64_t i = 0; i < part.elements(); ++i)
        REQUIRE(bench->download(part).at(i) ==
                values.at(i / columns * 20 + from + i % columns));
}

TEST_CASE("Dropout drops by the numbers of its stream, and divides the other elements",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape = GENERATE(Shape{9, 11}, Shape{7, 8}, Shape{1, 1030}, Shape{0, 4});
    const double probability = GENERATE(0.0, 0.25, 0.9);
    CAPTURE(shape.text(), probability);
    Bench bench;
    const RandomStream stream(3, "dropout");
    const RandomPart place{5, shape.columns() + 3};
    const HostTensor x = random_values(shape, dtype, "x");
    Expected y(shape, dtype);
    for (std::int64_t i = 0; i < shape.matrix_rows(); ++i)
        for (std::int64_t j = 0; j < shape.columns(); ++j) {
            const std::int64_t number = place.offset + i * place.pitch + j;
            const bool stays =
                stream.uniform(static_cast<std::uint64_t>(number)) >= probability;
            y.add(stays ? x.at(i * shape.columns() + j) / (1 - probability) : 0);
        }
    y.check(
        bench->download(bench->dropout(bench->upload(x), probability, stream, place)));
    if (probability == 0) {
        const Tensor same = bench->dropout(bench->upload(x), 0, stream);
        REQUIRE(bench->download(same) == x);
    }
}

TEST_CASE("Dropout of a part of a batch drops the same elements as of the whole batch",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    const RandomStream stream(3, "dropout");
    const Tensor x = bench->upload(random_values({12, 7}, dtype, "x"));
    const HostTensor whole = bench->download(bench->dropout(x, 0.5, stream));
    REQUIRE(bench->download(bench->dropout(x.rows(5, 3), 0.5, stream, {5 * 7})) ==
            whole.rows(5, 3));
    std::int64_t dropped = 0;
    for (std::int64_t i = 0; i < whole.elements(); ++i)
        dropped += whole.at(i) == 0 ? 1 : 0;
    REQUIRE(dropped > 84 / 4);
    REQUIRE(dropped < 84 * 3 / 4);
}

}  // namespace lockstep::test
