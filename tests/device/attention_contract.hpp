#pragma once

#include "tests/device/support.hpp"

namespace lockstep::test {

/// How much attention there is: m queries and n keys, and columns before and behind the
/// heads' own.
struct HeadCase {
    std::int64_t m, n, batches, heads, width;
    std::int64_t before = 0, behind = 0;

    std::int64_t columns() const { return before + heads * width + behind; }
};

inline std::vector<HeadCase> head_cases() {
    return {{1, 1, 1, 1, 1},       {3, 5, 2, 2, 4, 0, 0},  {7, 7, 1, 3, 5, 2, 1},
            {33, 17, 2, 1, 16, 3}, {5, 64, 3, 4, 9, 0, 8}, {40, 1, 2, 2, 8, 16, 16}};
}

/// Values (rows, batches, columns) on the host and on the device, and their heads.
struct HeadOperand {
    HeadOperand(Bench& bench, const HeadCase& of, std::int64_t rows, DType dtype,
                const std::string& name)
        : values(random_values({rows, of.batches, of.columns()}, dtype, name)),
          view{bench->upload(values), of.heads, of.width, of.before},
          of_(of) {}

    std::int64_t place(std::int64_t batch, std::int64_t head, std::int64_t row,
                       std::int64_t column) const {
        return (row * of_.batches + batch) * of_.columns() + of_.before +
               head * of_.width + column;
    }
    double at(std::int64_t batch, std::int64_t head, std::int64_t row,
              std::int64_t column) const {
        return values.at(place(batch, head, row, column));
    }

    HostTensor values;
    Heads view;

  private:
    HeadCase of_;
};

TEST_CASE("Products of heads are their definition, wherever in a row the heads lie",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const double factor = GENERATE(1.0, -0.375);
    Bench bench;
    for (const HeadCase& of : head_cases()) {
        CAPTURE(of.m, of.n, of.batches, of.heads, of.width, of.before, factor);
        const HeadOperand x(bench, of, of.m, dtype, "x");
        const HeadOperand y(bench, of, of.n, dtype, "y");
        Expected expected({of.batches, of.heads, of.m, of.n}, dtype);
        for (std::int64_t b = 0; b < of.batches; ++b)
            for (std::int64_t h = 0; h < of.heads; ++h)
                for (std::int64_t i = 0; i < of.m; ++i)
                    for (std::int64_t j = 0; j < of.n; ++j) {
                        Sum sum;
                        for (std::int64_t d = 0; d < of.width; ++d)
                            sum.add(x.at(b, h, i, d) * y.at(b, h, j, d));
                        sum.expect(expected, factor);
                    }
        expected.check(bench->download(bench->head_products(x.view, y.view, factor)));
    }
}

/// Weights (batches, heads, m, n), or transposed (…, n, m), and the sums that they give.
struct WeightedHeads {
    WeightedHeads(const HeadCase& of, DType dtype, bool transposed)
        : weights(random_values(transposed ? Shape{of.batches, of.heads, of.n, of.m}
                                           : Shape{of.batches, of.heads, of.m, of.n},
                                dtype, "weights")),
          of_(of),
          transposed_(transposed) {}

    /// The sum of head `head` for query i, column d; each term is multiplied by `factor`.
    Sum sum(const HeadOperand& y, std::int64_t batch, std::int64_t head, std::int64_t i,
            std::int64_t d, double factor = 1) const {
        Sum result;
        const std::int64_t begin = (batch * of_.heads + head) * of_.m * of_.n;
        for (std::int64_t j = 0; j < of_.n; ++j)
            result.add(factor *
                       weights.at(begin + (transposed_ ? j * of_.m + i : i * of_.n + j)) *
                       y.at(batch, head, j, d));
        return result;
    }

    HostTensor weights;

  private:
    HeadCase of_;
    bool transposed_;
};

TEST_CASE("Sums of heads are their definition, side by side in a new tensor", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    for (const HeadCase& of : head_cases()) {
        CAPTURE(of.m, of.n, of.batches, of.heads, of.width, of.before);
        const HeadOperand y(bench, of, of.n, dtype, "y");
        const WeightedHeads weighted(of, dtype, false);
        Expected expected({of.m, of.batches, of.heads * of.width}, dtype);
        for (std::int64_t i = 0; i < of.m; ++i)
            for (std::int64_t b = 0; b < of.batches; ++b)
                for (std::int64_t h = 0; h < of.heads; ++h)
                    for (std::int64_t d = 0; d < of.width; ++d)
                        weighted.sum(y, b, h, i, d).expect(expected);
        expected.check(
            bench->download(bench->head_sums(bench->upload(weighted.weights), y.view)));
    }
}

TEST_CASE("Sums of heads are added to their own columns, and to no others", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const HeadSumOptions options =
        GENERATE(HeadSumOptions{}, HeadSumOptions{true, 1}, HeadSumOptions{false, -0.75},
                 HeadSumOptions{true, 3});
    Bench bench;
    for (const HeadCase& of : head_cases()) {
        CAPTURE(of.m, of.n, of.batches, of.heads, of.width, of.before, options.transpose,
                options.factor);
        const HeadOperand y(bench, of, of.n, dtype, "y");
        const HeadOperand destination(bench, of, of.m, dtype, "destination");
        const WeightedHeads weighted(of, dtype, options.transpose);
        bench->add_head_sums(destination.view, bench->upload(weighted.weights), y.view,
                             options);
        Expected expected(destination.values.shape(), dtype);
        for (std::int64_t i = 0; i < of.m; ++i)
            for (std::int64_t b = 0; b < of.batches; ++b)
                for (std::int64_t c = -of.before; c < of.columns() - of.before; ++c) {
                    const double before = destination.at(b, 0, i, c);
                    if (c < 0 || c >= of.heads * of.width) {
                        expected.add(before, 0);
                        continue;
                    }
                    Sum sum =
                        weighted.sum(y, b, c / of.width, i, c % of.width, options.factor);
                    sum.add(before);
                    sum.expect(expected);
                }
        expected.check(bench->download(destination.view.tensor));
    }
}

TEST_CASE("Queries, keys and values may be columns of one tensor", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const HeadCase of{6, 6, 2, 2, 3};
    Bench bench;
    const HostTensor values = random_values({6, 2, 18}, dtype, "all");
    const Tensor all = bench->upload(values);
    Heads of_all[3];
    Heads alone[3];
    for (std::int64_t part = 0; part < 3; ++part) {
        const Tensor tensor = bench->empty({6, 2, 6}, dtype);
        bench->copy_columns(tensor, 0, all, part * 6, 6);
        of_all[part] = {all, of.heads, of.width, part * 6};
        alone[part] = {tensor, of.heads, of.width, 0};
    }
    const Tensor products = bench->head_products(of_all[0], of_all[1]);
    const auto near = [&](const Tensor& got, const Tensor& wanted) {
        const HostTensor reference = bench->download(wanted);
        Expected expected(reference.shape(), dtype);
        for (std::int64_t i = 0; i < reference.elements(); ++i)
            expected.add(reference.at(i), 6);
        expected.check(bench->download(got));
    };
    near(products, bench->head_products(alone[0], alone[1]));
    near(bench->head_sums(products, of_all[2]), bench->head_sums(products, alone[2]));
}

TEST_CASE("Attention to nothing is zero, and nothing's attention is nothing", kTags) {
    Bench bench;
    const Tensor some = bench->upload(random_values({3, 2, 4}, DType::f32, "some"));
    const Tensor none = bench->empty({0, 2, 4}, DType::f32);
    REQUIRE(bench->head_products({some, 2, 2}, {none, 2, 2}).shape() ==
            Shape{2, 2, 3, 0});
    REQUIRE(bench->head_products({none, 2, 2}, {some, 2, 2}).shape() ==
            Shape{2, 2, 0, 3});
    const Tensor no_keys = bench->empty({2, 2, 3, 0}, DType::f32);
    REQUIRE(bench->download(bench->head_sums(no_keys, {none, 2, 2})) ==
            HostTensor({3, 2, 4}, DType::f32));
    const HostTensor before = bench->download(some);
    bench->add_head_sums({some, 2, 2}, no_keys, {none, 2, 2});
    REQUIRE(bench->download(some) == before);
}

TEST_CASE("A causal softmax is that of what each query sees, and zero beyond", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape =
        GENERATE(Shape{1, 1}, Shape{7, 7}, Shape{9, 4}, Shape{3, 20}, Shape{16, 16},
                 Shape{2, 3, 5, 5}, Shape{2, 33, 33}, Shape{2, 100, 100}, Shape{0, 4, 4});
    CAPTURE(shape.text());
    Bench bench;
    const std::int64_t columns = shape.columns();
    const std::int64_t queries = shape[shape.dimensions() - 2];
    HostTensor x = random_values(shape, dtype, "x", -9, 9);
    Expected expected(shape, dtype);
    for (std::int64_t row = 0; row < shape.rows(); ++row) {
        const std::int64_t seen = std::min(row % queries + 1, columns);
        double sum = 0;
        for (std::int64_t j = 0; j < seen; ++j)
            sum += std::exp(x.at(row * columns + j));
        for (std::int64_t j = 0; j < columns; ++j) {
            const double p = j < seen ? std::exp(x.at(row * columns + j)) / sum : 0;
            expected.add(p, 20 * p, static_cast<double>(columns));
            // What is not seen must not be looked at.
            if (j >= seen) x.set(row * columns + j, j % 2 == 0 ? NAN : INFINITY);
        }
    }
    const HostTensor y = bench->download(bench->softmax(bench->upload(x), {true}));
    expected.check(y);
    for (std::int64_t row = 0; row < shape.rows(); ++row)
        for (std::int64_t j = row % queries + 1; j < columns; ++j)
            REQUIRE(y.at(row * columns + j) == 0);
}

TEST_CASE("A query that sees no number gives none, but zeros beyond", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const double bad = GENERATE(NAN, -INFINITY);
    Bench bench;
    HostTensor x = random_values({20, 20}, dtype, "x");
    for (std::int64_t i = 0; i < 20; ++i)
        x.set(11 * 20 + i, bad);
    const HostTensor y = bench->download(bench->softmax(bench->upload(x), {true}));
    for (std::int64_t j = 0; j < 20; ++j) {
        REQUIRE(std::isnan(y.at(11 * 20 + j)) == (j <= 11));
        REQUIRE_FALSE(std::isnan(y.at(12 * 20 + j)));
        if (j > 11) REQUIRE(y.at(11 * 20 + j) == 0);
    }
}

}  // namespace lockstep::test
