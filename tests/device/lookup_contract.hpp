#pragma once

#include "tests/device/support.hpp"

namespace lockstep::test {

TEST_CASE("An embedding is the rows that the ids name; its gradient adds to them",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t width = GENERATE(1, 16, 33);
    const std::int64_t vocabulary = 7;
    Bench bench;
    const HostTensor table = random_values({vocabulary, width}, dtype, "table");
    const HostTensor ids = random_indices({4, 9}, vocabulary, "ids");
    const HostTensor dy = random_values({4, 9, width}, dtype, "dy");
    const Tensor on_device = bench->upload(table);
    const Tensor indices = bench->upload(ids);

    const HostTensor rows = bench->download(bench->embedding(on_device, indices));
    REQUIRE(rows.shape() == Shape{4, 9, width});
    std::vector<Sum> sums(static_cast<std::size_t>(vocabulary * width));
    for (std::size_t i = 0; i < sums.size(); ++i)
        sums[i].add(table.at(static_cast<std::int64_t>(i)));
    for (std::int64_t i = 0; i < 36; ++i) {
        for (std::int64_t j = 0; j < width; ++j) {
            const auto at = static_cast<std::int64_t>(ids.at(i)) * width + j;
            REQUIRE(rows.at(i * width + j) == table.at(at));
            sums[static_cast<std::size_t>(at)].add(dy.at(i * width + j));
        }
    }
    bench->embedding_backward(on_device, indices, bench->upload(dy));
    Expected expected(table.shape(), dtype);
    for (const Sum& sum : sums)
        sum.expect(expected);
    expected.check(bench->download(on_device));
}

TEST_CASE("In each row, columns are read by index, and added to by index", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape =
        GENERATE(Shape{1, 1}, Shape{5, 7}, Shape{300, 33}, Shape{2, 9, 5}, Shape{0, 3});
    const std::int64_t many = GENERATE(1, 2, 6, 0);
    CAPTURE(shape.text(), many);
    const std::int64_t columns = shape.columns();
    Bench bench;
    const HostTensor whole = random_values(shape, dtype, "whole");
    const Shape list_shape = shape.with_last(many);
    const HostTensor index = random_indices(list_shape, columns, "index");
    const HostTensor added = random_values(list_shape, dtype, "added");
    const Tensor on_device = bench->upload(whole), indices = bench->upload(index);

    const Tensor list = bench->zeros(list_shape, dtype);
    bench->take_columns(list, on_device, indices);
    HostTensor taken(list_shape, dtype);
    std::vector<Sum> sums(static_cast<std::size_t>(whole.elements()));
    for (std::int64_t i = 0; i < whole.elements(); ++i)
        sums[static_cast<std::size_t>(i)].add(whole.at(i));
    for (std::int64_t i = 0; i < taken.elements(); ++i) {
        const std::int64_t at =
            i / many * columns + static_cast<std::int64_t>(index.at(i));
        taken.set(i, whole.at(at));
        sums[static_cast<std::size_t>(at)].add(added.at(i));
    }
    REQUIRE(bench->download(list) == taken);
    bench->add_columns(on_device, bench->upload(added), indices);
    Expected expected(shape, dtype);
    for (const Sum& sum : sums)
        sum.expect(expected);
    expected.check(bench->download(on_device));
}

TEST_CASE("An index outside the columns is named", kTags) {
    const std::int32_t wrong = GENERATE(-1, 3);
    Bench bench;
    const Tensor whole = bench->zeros({2, 3}, DType::f32);
    const Tensor list = bench->zeros({2, 1}, DType::f32);
    const Tensor index =
        bench->upload(HostTensor::of<std::int32_t>({2, 1}, std::vector{2, wrong}));
    const std::string sentence = fmt::format("index 1 is {}, outside [0, 3)", wrong);
    refuses("take_columns: " + sentence,
            [&] { bench->take_columns(list, whole, index); });
    refuses("add_columns: " + sentence, [&] { bench->add_columns(whole, list, index); });
}

TEST_CASE("Embeddings by shards of a table add up to the whole's, and so do gradients",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t width = GENERATE(1, 16, 33);
    const std::int64_t count = GENERATE(9, 600);
    const int shards = GENERATE(1, 3, 5);
    CAPTURE(width, count, shards);
    const std::int64_t vocabulary = 10;
    // If there are five shards, the last has only padding.
    const std::int64_t extent = shards == 5 ? 3 : (vocabulary + shards - 1) / shards;
    Bench bench;
    const HostTensor table = random_values({vocabulary, width}, dtype, "table");
    const HostTensor padded_table = random_values({shards * extent, width}, dtype, "pad");
    const Tensor ids = bench->upload(random_indices({count}, vocabulary, "ids"));
    const Tensor dy = bench->upload(random_values({count, width}, dtype, "dy"));
    const Tensor whole = bench->upload(table);
    const HostTensor rows = bench->download(bench->embedding(whole, ids));
    bench->embedding_backward(whole, ids, dy);
    const Tensor padded = bench->upload(padded_table);
    bench->copy(padded.rows(0, vocabulary), bench->upload(table));

    const Tensor sum = bench->zeros({count, width}, dtype);
    for (int k = 0; k < shards; ++k) {
        const Tensor own = padded.rows(k * extent, extent);
        bench->add(sum, bench->embedding(own, ids, {k * extent, vocabulary}));
        bench->embedding_backward(own, ids, dy, {k * extent, vocabulary});
    }
    REQUIRE(bench->download(sum) == rows);
    const HostTensor got = bench->download(padded);
    REQUIRE(got.rows(0, vocabulary) == bench->download(whole));
    const std::int64_t padding = shards * extent - vocabulary;
    REQUIRE(got.rows(vocabulary, padding) == padded_table.rows(vocabulary, padding));
}

TEST_CASE("An id outside the whole vocabulary is named by each shard of the table",
          kTags) {
    const std::int32_t wrong = GENERATE(-1, 10, 11);
    Bench bench;
    const Tensor table = bench->zeros({4, 3}, DType::f32);
    const Tensor ids =
        bench->upload(HostTensor::of<std::int32_t>({2}, std::vector{9, wrong}));
    const Tensor dy = bench->empty({2, 3}, DType::f32);
    bench->fill(dy, 1);
    const std::string sentence = fmt::format(": index 1 is {}, outside [0, 10)", wrong);
    for (const std::int64_t first : {0, 8}) {
        refuses("embedding" + sentence, [&] {
            bench->embedding(table, ids, {first, 10});
        });
        refuses("embedding_backward" + sentence, [&] {
            bench->embedding_backward(table, ids, dy, {first, 10});
        });
    }
    REQUIRE(bench->download(table) == HostTensor({4, 3}, DType::f32));
}

TEST_CASE("Rows are taken by index, and added by index in the order of the indices",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t width = GENERATE(1, 16, 33);
    const std::int64_t count = GENERATE(4, 300);
    CAPTURE(width, count);
    Bench bench;
    const HostTensor whole = random_values({2, 6, width}, dtype, "whole");
    const HostTensor indices = random_indices({2, count}, 12, "indices");
    const HostTensor rows = random_values({count, 2, width}, dtype, "rows");
    const auto place = [&](std::int64_t i, std::int64_t j) {
        return static_cast<std::int64_t>(indices.at(i)) * width + j;
    };
    HostTensor taken(rows.shape(), dtype), added = whole;
    for (std::int64_t i = 0; i < 2 * count; ++i)
        for (std::int64_t j = 0; j < width; ++j) {
            taken.set(i * width + j, whole.at(place(i, j)));
            // set() rounds to the dtype after each addition, as the device does.
            added.set(place(i, j), added.at(place(i, j)) + rows.at(i * width + j));
        }
    const Tensor on_device = bench->upload(whole);
    const Tensor named = bench->upload(indices);
    const Tensor list = bench->upload(rows);
    bench->add_rows(on_device, list, named);
    REQUIRE(bench->download(on_device) == added);
    bench->take_rows(list, bench->upload(whole), named);
    REQUIRE(bench->download(list) == taken);
}

TEST_CASE("An index of a missing row is named", kTags) {
    const std::int32_t wrong = GENERATE(-1, 4, 5);
    Bench bench;
    const Tensor whole = bench->zeros({4, 3}, DType::f32);
    const Tensor list = bench->zeros({2, 3}, DType::f32);
    bench->fill(list, 1);
    const Tensor indices =
        bench->upload(HostTensor::of<std::int32_t>({2}, std::vector{3, wrong}));
    const std::string sentence = fmt::format(": index 1 is {}, outside [0, 4)", wrong);
    refuses("take_rows" + sentence, [&] { bench->take_rows(list, whole, indices); });
    refuses("add_rows" + sentence, [&] { bench->add_rows(whole, list, indices); });
    REQUIRE(bench->download(whole) == HostTensor({4, 3}, DType::f32));
    REQUIRE(bench->download(list).at(0) == 1);
    const Tensor none = bench->empty({0, 3}, DType::f32);
    refuses("take_rows: index 0 is 3, outside [0, 0)",
            [&] { bench->take_rows(list, none, indices); });
    refuses("add_rows: index 0 is 3, outside [0, 0)",
            [&] { bench->add_rows(none, list, indices); });
    const Tensor no_indices = bench->empty({0}, DType::i32);
    bench->take_rows(none, whole, no_indices);
    bench->add_rows(whole, none, no_indices);
    REQUIRE(bench->download(whole) == HostTensor({4, 3}, DType::f32));
}

TEST_CASE("An embedding of no ids, or of width 0, is empty", kTags) {
    Bench bench;
    const Tensor table = bench->zeros({5, 3}, DType::f32);
    const Tensor no_ids = bench->empty({2, 0}, DType::i32);
    REQUIRE(bench->embedding(table, no_ids).shape() == Shape{2, 0, 3});
    bench->embedding_backward(table, no_ids, bench->empty({0, 3}, DType::f32));
    const Tensor ids = bench->zeros({2}, DType::i32);
    REQUIRE(bench->embedding(bench->empty({5, 0}, DType::f32), ids).shape() ==
            Shape{2, 0});
}

TEST_CASE("An id outside the vocabulary is named, and no row is added to", kTags) {
    Bench bench;
    const Tensor table = bench->zeros({5, 3}, DType::f32);
    const Tensor ids =
        bench->upload(HostTensor::of<std::int32_t>({2}, std::vector{4, 5}));
    const Tensor dy = bench->empty({2, 3}, DType::f32);
    bench->fill(dy, 1);
    refuses("embedding: index 1 is 5, outside [0, 5)",
            [&] { bench->embedding(table, ids); });
    refuses("embedding_backward: index 1 is 5, outside [0, 5)",
            [&] { bench->embedding_backward(table, ids, dy); });
    REQUIRE(bench->download(table) == HostTensor({5, 3}, DType::f32));
    refuses("embedding: index 0 is 4, outside [0, 0)", [&] {
        bench->embedding(bench->empty({0, 3}, DType::f32), ids);
    });
}

}  // namespace lockstep::test
