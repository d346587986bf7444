#pragma once

#include "tests/device/head_operand.hpp"

namespace lockstep::test {

inline std::vector<HeadCase> head_cases() {
    return {
        {1, 1, 1, 1, 1, 1},       {3, 5, 2, 2, 2, 4},        {7, 7, 1, 3, 3, 5, 2, 1},
        {33, 17, 2, 1, 1, 16, 3}, {5, 64, 3, 4, 4, 9, 0, 8}, {40, 1, 2, 2, 2, 8, 16, 16},
        {3, 5, 2, 4, 2, 4, 1, 2}, {9, 20, 1, 3, 1, 5},       {17, 6, 2, 6, 2, 3, 0, 7}};
}

TEST_CASE("Products of heads equal their definition at any place in a row", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const double factor = GENERATE(1.0, -0.375);
    Bench bench;
    for (const HeadCase& of : head_cases()) {
        CAPTURE(text_of(of), factor);
        const HeadOperand x(bench, of, of.heads, of.m, dtype, "x");
        const HeadOperand y(bench, of, of.few, of.n, dtype, "y");
        Expected expected({of.batches, of.heads, of.m, of.n}, dtype);
        for (std::int64_t b = 0; b < of.batches; ++b)
            for (std::int64_t h = 0; h < of.heads; ++h)
                for (std::int64_t i = 0; i < of.m; ++i)
                    for (std::int64_t j = 0; j < of.n; ++j) {
                        Sum sum;
                        for (std::int64_t d = 0; d < of.width; ++d)
                            sum.add(x.at(b, h, i, d) * y.at(b, of.serving(h), j, d));
                        sum.expect(expected, factor);
                    }
        expected.check(bench->download(bench->head_products(x.view, y.view, factor)));
    }
}

/// Weights (batches, heads, m, n), or transposed (…, n, m), and their sums.
struct WeightedHeads {
    WeightedHeads(const HeadCase& of, DType dtype, bool transposed)
        : weights(random_values(transposed ? Shape{of.batches, of.heads, of.n, of.m}
                                           : Shape{of.batches, of.heads, of.m, of.n},
                                dtype, "weights")),
          of_(of),
          transposed_(transposed) {}

    /// Adds to `sum` the terms of head `head` for query i and column d, each multiplied
    /// by `factor`. y has either all heads or the few.
    void add(Sum& sum, const HeadOperand& y, std::int64_t batch, std::int64_t head,
             std::int64_t i, std::int64_t d, double factor = 1) const {
        const std::int64_t begin = (batch * of_.heads + head) * of_.m * of_.n;
        const std::int64_t from = y.view.heads == of_.heads ? head : of_.serving(head);
        for (std::int64_t j = 0; j < of_.n; ++j)
            sum.add(factor *
                    weights.at(begin + (transposed_ ? j * of_.m + i : i * of_.n + j)) *
                    y.at(batch, from, j, d));
    }

    HostTensor weights;

  private:
    HeadCase of_;
    bool transposed_;
};

TEST_CASE("Sums of heads equal their definition, side by side in a new tensor", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    for (const HeadCase& of : head_cases()) {
        CAPTURE(text_of(of));
        const HeadOperand y(bench, of, of.few, of.n, dtype, "y");
        const WeightedHeads weighted(of, dtype, false);
        Expected expected({of.m, of.batches, of.heads * of.width}, dtype);
        for (std::int64_t i = 0; i < of.m; ++i)
            for (std::int64_t b = 0; b < of.batches; ++b)
                for (std::int64_t h = 0; h < of.heads; ++h)
                    for (std::int64_t d = 0; d < of.width; ++d) {
                        Sum sum;
                        weighted.add(sum, y, b, h, i, d);
                        sum.expect(expected);
                    }
        expected.check(
            bench->download(bench->head_sums(bench->upload(weighted.weights), y.view)));
    }
}

/// Checks sums of `y_heads` heads that are added to `into` heads.
inline void check_added_sums(Bench& bench, const HeadCase& of, std::int64_t into,
                             std::int64_t y_heads, DType dtype,
                             const HeadSumOptions& options) {
    CAPTURE(text_of(of), into, options.transpose, options.factor);
    const HeadOperand y(bench, of, y_heads, of.n, dtype, "y");
    const HeadOperand destination(bench, of, into, of.m, dtype, "destination");
    const WeightedHeads weighted(of, dtype, options.transpose);
    bench->add_head_sums(destination.view, bench->upload(weighted.weights), y.view,
                         options);
    Expected expected(destination.values.shape(), dtype);
    const std::int64_t group = of.heads / into;
    destination.each_element(
        [&](std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t d) {
            if (head < 0) {
                expected.add(destination.outside(b, i, d), 0);
                return;
            }
            Sum sum;
            for (std::int64_t h = head * group; h < (head + 1) * group; ++h)
                weighted.add(sum, y, b, h, i, d, options.factor);
            sum.add(destination.at(b, head, i, d));
            sum.expect(expected);
        });
    expected.check(bench->download(destination.view.tensor));
}

TEST_CASE("Sums of heads are added to their own columns, and to no others", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const HeadSumOptions options =
        GENERATE(HeadSumOptions{}, HeadSumOptions{true, 1}, HeadSumOptions{false, -0.75},
                 HeadSumOptions{true, 3});
    Bench bench;
    for (const HeadCase& of : head_cases()) {
        check_added_sums(bench, of, of.heads, of.few, dtype, options);
        // Each of the few heads gets the sum over the heads that it serves.
        if (of.few < of.heads)
            check_added_sums(bench, of, of.few, of.heads, dtype, options);
    }
}

TEST_CASE("Queries, keys and values may be columns of one tensor", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const HeadCase of{6, 6, 2, 2, 2, 3};
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

TEST_CASE("Attention to no keys is zero, and attention of no queries is empty", kTags) {
    Bench bench;
    const Tensor some = bench->upload(random_values({3, 2, 4}, DType::f32, "some"));
    const Tensor none = bench->empty({0, 2, 4}, DType::f32);
    REQUIRE(bench->head_products({some, 2, 2}, {none, 1, 2}).shape() ==
            Shape{2, 2, 3, 0});
    REQUIRE(bench->head_products({none, 2, 2}, {some, 2, 2}).shape() ==
            Shape{2, 2, 0, 3});
    const Tensor no_keys = bench->empty({2, 2, 3, 0}, DType::f32);
    REQUIRE(bench->download(bench->head_sums(no_keys, {none, 2, 2})) ==
            HostTensor({3, 2, 4}, DType::f32));
    const HostTensor before = bench->download(some);
    bench->add_head_sums({some, 2, 2}, no_keys, {none, 2, 2});
    bench->add_head_sums({some, 1, 2}, no_keys, {none, 2, 2});
    REQUIRE(bench->download(some) == before);
}

}  // namespace lockstep::test
