#include <algorithm>

#include "tests/gpu/device_support.hpp"

// A GPU device promises more than the contract: the same bits on every rerun, and for
// operands at any address. Also tests shapes for each variant of a kernel.

namespace lockstep::test {

namespace {

/// These shapes need a warp or a block for each row, packs that fill rows or do not, and
/// few rows or many slabs of rows. Wider rows are tested in test_device_rows.cpp.
const std::vector<Shape> kShapes = {
    Shape{3, 5},    Shape{7, 64},   Shape{2, 1023}, Shape{2, 1024}, Shape{2, 1028},
    Shape{2, 2051}, Shape{2, 8200}, Shape{300, 36}, Shape{1000, 3}, Shape{3000, 4}};

struct Inputs {
    Inputs(Shape shape, DType dtype)
        : a(random_values(shape, dtype, "a", -3, 3)),
          b(random_values(shape, dtype, "b", -3, 3)),
          row(random_values({shape.columns()}, dtype, "row")) {}
    HostTensor a, b, row;
};

HostTensor result(Bench& bench, const NamedOperation& operation, const Inputs& inputs,
                  std::int64_t shift) {
    return operation.run(bench, uploaded(bench, inputs.a, shift),
                         uploaded(bench, inputs.b, shift == 3 ? 1 : shift),
                         uploaded(bench, inputs.row, shift == 2 ? 0 : shift));
}

}  // namespace

TEST_CASE("A rerun gives the same bits, and so do operands at other addresses",
          "[gpu][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    for (const Shape& shape : kShapes) {
        const Inputs inputs(shape, dtype);
        Bench bench;
        for (const NamedOperation& operation : operations_to_repeat()) {
            const HostTensor first = result(bench, operation, inputs, 0);
            for (const std::int64_t shift : {0, 1, 2, 3}) {
                CAPTURE(operation.name, shape.text(), shift);
                REQUIRE(result(bench, operation, inputs, shift) == first);
            }
        }
    }
}

TEST_CASE(
    "In bf16, rows and columns of any shape, at any address, give f32's bits, rounded",
    "[gpu][device][bf16]") {
    for (const Shape& shape : kShapes) {
        const Inputs narrow(shape, DType::bf16);
        Inputs wide = narrow;
        for (HostTensor* input : {&wide.a, &wide.b, &wide.row})
            *input = input->as(DType::f32);
        Bench bench;
        for (const NamedOperation& operation : operations_to_repeat()) {
            const HostTensor expected = result(bench, operation, wide, 0);
            for (const std::int64_t shift : {0, 1, 2, 3, 4}) {
                CAPTURE(operation.name, shape.text(), shift);
                const HostTensor got = result(bench, operation, narrow, shift);
                REQUIRE(got == expected.as(got.dtype()));
            }
        }
    }
}

TEST_CASE("Operations on views of any address and length touch nothing outside of them",
          "[gpu][device][sanitizer]") {
    const DType dtype = GENERATE(DType::f32, DType::f64, DType::i32, DType::bf16);
    Bench bench;
    const std::int64_t room = 5000;
    const HostTensor before = random_values({room}, dtype, "before", -9, 9);
    const HostTensor added = random_values({room}, dtype, "added", -9, 9);
    for (const std::int64_t count : {1, 2, 3, 4, 5, 8, 15, 16, 31, 1024, 4095, 4097}) {
        for (const std::int64_t shift : {0, 1, 2, 3, 4, 7}) {
            CAPTURE(count, shift);
            const Tensor whole = bench->upload(before);
            const Tensor source = bench->upload(added).slice((shift * 3) % 5, count);
            bench->combine(whole.slice(shift, count), source, Reduction::maximum);
            const HostTensor got = bench->download(whole);
            for (std::int64_t i = 0; i < room; ++i) {
                const bool inside = i >= shift && i < shift + count;
                const double other = added.at(inside ? i - shift + (shift * 3) % 5 : 0);
                REQUIRE(got.at(i) ==
                        (inside ? std::max(before.at(i), other) : before.at(i)));
            }
        }
    }
}

TEST_CASE("Wide rows and tall columns are as exact as narrow ones",
          "[gpu][device][sanitizer]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    for (const Shape& shape : kShapes) {
        CAPTURE(shape.text());
        const Inputs inputs(shape, dtype);
        const std::int64_t columns = shape.columns();
        Bench bench;
        Expected sums({columns}, dtype);
        Expected probabilities(shape, dtype);
        for (std::int64_t j = 0; j < columns; ++j) {
            Sum sum;
            sum.add(inputs.row.at(j));
            for (std::int64_t i = 0; i < shape.matrix_rows(); ++i)
                sum.add(inputs.a.at(i * columns + j));
            sum.expect(sums);
        }
        for (std::int64_t i = 0; i < shape.matrix_rows(); ++i) {
            double whole = 0;
            for (std::int64_t j = 0; j < columns; ++j)
                whole += std::exp(inputs.a.at(i * columns + j));
            for (std::int64_t j = 0; j < columns; ++j) {
                const double x = inputs.a.at(i * columns + j);
                probabilities.add(std::exp(x) / whole, std::exp(x) / whole * 8, 4);
            }
        }
        const Tensor x = bench->upload(inputs.a);
        const Tensor row = bench->upload(inputs.row);
        bench->accumulate_rows(row, x);
        sums.check(bench->download(row));
        probabilities.check(bench->download(bench->softmax(x)));
    }
}

TEST_CASE("A causal softmax of wide rows covers the keys that each row sees",
          "[gpu][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    // Rows that see few keys; these keys end within a pack, a warp's sweep or a block's
    // sweep. Also a wide row.
    const Shape shape = GENERATE(Shape{3, 8200}, Shape{3, 8201}, Shape{40, 1028},
                                 Shape{2, 1030, 40}, Shape{1100, 1100});
    CAPTURE(shape.text());
    const std::int64_t columns = shape.columns();
    const std::int64_t queries = shape[shape.dimensions() - 2];
    Bench bench;
    const HostTensor x = random_values(shape, dtype, "x", -3, 3);
    const HostTensor y = bench->download(bench->softmax(bench->upload(x), {true}));
    Expected expected(shape, dtype);
    for (std::int64_t row = 0; row < shape.matrix_rows(); ++row) {
        const std::int64_t seen = std::min(row % queries + 1, columns);
        double whole = 0;
        for (std::int64_t j = 0; j < seen; ++j)
            whole += std::exp(x.at(row * columns + j));
        for (std::int64_t j = 0; j < columns; ++j) {
            const double p = j < seen ? std::exp(x.at(row * columns + j)) / whole : 0;
            expected.add(p, p * 8, 4);
        }
    }
    expected.check(y);
}

TEST_CASE("Root mean square norm of wide rows equals its definition", "[gpu][device]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t columns = GENERATE(1028, 2051, 8200, 20000);
    CAPTURE(columns);
    Bench bench;
    const HostTensor x = random_values({2, columns}, dtype, "x", -3, 5);
    const HostTensor dy = random_values({2, columns}, dtype, "dy");
    const Tensor one = bench->empty({columns}, dtype);
    bench->fill(one, 1);
    const Tensor on_device = bench->upload(x);
    const Normalized got = bench->rms_norm(on_device, one, 0);
    // The reference must be more exact than the tested result.
    using Exact = long double;
    const auto n = static_cast<Exact>(columns);
    Expected rstds({2}, dtype), y({2, columns}, dtype), dx({2, columns}, dtype);
    for (std::int64_t i = 0; i < 2; ++i) {
        Exact squares = 0, sum = 0;
        for (std::int64_t j = 0; j < columns; ++j) {
            const Exact value = x.at(i * columns + j);
            squares += value * value / n;
            sum += value * dy.at(i * columns + j) / n;
        }
        const auto r = static_cast<double>(1 / std::sqrt(squares));
        const auto along = static_cast<double>(sum);
        rstds.add(r, r, 4);
        for (std::int64_t j = 0; j < columns; ++j) {
            y.add(x.at(i * columns + j) * r, 5 * r, 4);
            dx.add(r * (dy.at(i * columns + j) - x.at(i * columns + j) * r * (along * r)),
                   4 * r, 4);
        }
    }
    rstds.check(bench->download(got.rstd));
    y.check(bench->download(got.y));
    dx.check(bench->download(
        bench->rms_norm_backward_input(bench->upload(dy), on_device, one, got.rstd)));
}

TEST_CASE("Layer norm of wide rows equals its definition", "[gpu][device][sanitizer]") {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t columns = GENERATE(1028, 2051, 8200, 20000);
    CAPTURE(columns);
    Bench bench;
    const HostTensor x = random_values({2, columns}, dtype, "x", 99, 101);
    const Tensor one = bench->empty({columns}, dtype);
    bench->fill(one, 1);
    const Device::Normalized got =
        bench->layer_norm(bench->upload(x), one, bench->zeros({columns}, dtype), 0);
    const auto n = static_cast<double>(columns);
    Expected means({2}, dtype), rstds({2}, dtype);
    for (std::int64_t i = 0; i < 2; ++i) {
        double mean = 0, squares = 0;
        for (std::int64_t j = 0; j < columns; ++j)
            mean += (x.at(i * columns + j) - 100) / n;
        mean += 100;
        for (std::int64_t j = 0; j < columns; ++j)
            squares += std::pow(x.at(i * columns + j) - mean, 2);
        means.add(mean);
        rstds.add(1 / std::sqrt(squares / n), 100, 4);
    }
    means.check(bench->download(got.mean));
    rstds.check(bench->download(got.rstd));
}

TEST_CASE("An embedding's gradient is added in the order of the ids, few or many",
          "[gpu][device][sanitizer]") {
    const DType dtype = GENERATE(DType::f32, DType::f64, DType::bf16);
    const std::int64_t width = GENERATE(1, 4, 12, 33);
    const std::int64_t count = GENERATE(1, 500, 512, 513, 5000);
    const std::int64_t vocabulary = GENERATE(1, 40);
    CAPTURE(width, count, vocabulary);
    Bench bench;
    const HostTensor table = random_values({vocabulary, width}, dtype, "table");
    const HostTensor ids = random_indices({count}, vocabulary, "ids");
    const HostTensor dy = random_values({count, width}, dtype, "dy");
    HostTensor expected = table.as(computed_in(dtype));
    for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t j = 0; j < width; ++j) {
            const auto at = static_cast<std::int64_t>(ids.at(i)) * width + j;
            // set() rounds after each addition, as the device does.
            expected.set(at, expected.at(at) + dy.at(i * width + j));
        }
    }
    expected = expected.as(dtype);
    const Tensor got = bench->upload(table);
    bench->embedding_backward(got, bench->upload(ids), bench->upload(dy));
    REQUIRE(bench->download(got) == expected);

    // The shard is the second half of the vocabulary.
    const std::int64_t first = vocabulary / 2;
    const Tensor shard = bench->upload(table.rows(first, vocabulary - first));
    bench->embedding_backward(shard, bench->upload(ids), bench->upload(dy),
                              {first, vocabulary});
    REQUIRE(bench->download(shard) == expected.rows(first, vocabulary - first));
}

TEST_CASE("The first index outside is found among many", "[gpu][device][sanitizer]") {
    const std::int64_t first = GENERATE(0, 3, 1021, 40000, 99999);
    Bench bench;
    HostTensor ids({100000}, DType::i32);
    for (std::int64_t i = first; i < ids.elements(); i += 7)
        ids.set(i, static_cast<double>(-1 - i));
    const Tensor table = bench->zeros({5, 1}, DType::f32);
    const std::string sentence =
        fmt::format("embedding: index {} is {}, outside [0, 5)", first, -1 - first);
    REQUIRE_THROWS_WITH(bench->embedding(table, bench->upload(ids)),
                        Catch::Matchers::EndsWith(sentence));
}

}  // namespace lockstep::test
