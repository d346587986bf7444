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
    for (const HeadCase& test_case : head_cases()) {
        CAPTURE(text_of(test_case), factor);
        const HeadOperand x(bench, test_case, test_case.heads, test_case.m, dtype, "x");
        const HeadOperand y(bench, test_case, test_case.few, test_case.n, dtype, "y");
        Expected expected({test_case.batches, test_case.heads, test_case.m, test_case.n},
                          dtype);
        for (std::int64_t b = 0; b < test_case.batches; ++b)
            for (std::int64_t h = 0; h < test_case.heads; ++h)
                for (std::int64_t i = 0; i < test_case.m; ++i)
                    for (std::int64_t j = 0; j < test_case.n; ++j) {
                        Sum sum;
                        for (std::int64_t d = 0; d < test_case.width; ++d)
                            sum.add(x.at(b, h, i, d) *
                                    y.at(b, test_case.serving(h), j, d));
                        sum.expect(expected, factor);
                    }
        expected.check(bench->download(bench->head_products(x.view, y.view, factor)));
    }
}

/// Weights (batches, heads, m, n), or transposed (…, n, m), and their sums.
struct WeightedHeads {
    WeightedHeads(const HeadCase& test_case, DType dtype, bool transposed)
        : weights(random_values(
              transposed
                  ? Shape{test_case.batches, test_case.heads, test_case.n, test_case.m}
                  : Shape{test_case.batches, test_case.heads, test_case.m, test_case.n},
              dtype, "weights")),
          test_case_(test_case),
          transposed_(transposed) {}

    /// Adds to `sum` the terms of head `head` for query i and column d, each multiplied
    /// by `factor`. y has either all heads or only the few heads.
    void add(Sum& sum, const HeadOperand& y, std::int64_t batch, std::int64_t head,
             std::int64_t i, std::int64_t d, double factor = 1) const {
        const std::int64_t begin =
            (batch * test_case_.heads + head) * test_case_.m * test_case_.n;
        const std::int64_t from =
            y.view.heads == test_case_.heads ? head : test_case_.serving(head);
        for (std::int64_t j = 0; j < test_case_.n; ++j)
            sum.add(factor *
                    weights.at(begin + (transposed_ ? j * test_case_.m + i
                                                    : i * test_case_.n + j)) *
                    y.at(batch, from, j, d));
    }

    HostTensor weights;

  private:
    HeadCase test_case_;
    bool transposed_;
};

TEST_CASE("Sums of heads, side by side in a new tensor, equal their definition", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    for (const HeadCase& test_case : head_cases()) {
        CAPTURE(text_of(test_case));
        const HeadOperand y(bench, test_case, test_case.few, test_case.n, dtype, "y");
        const WeightedHeads weighted(test_case, dtype, false);
        Expected expected(
            {test_case.m, test_case.batches, test_case.heads * test_case.width}, dtype);
        for (std::int64_t i = 0; i < test_case.m; ++i)
            for (std::int64_t b = 0; b < test_case.batches; ++b)
                for (std::int64_t h = 0; h < test_case.heads; ++h)
                    for (std::int64_t d = 0; d < test_case.width; ++d) {
                        Sum sum;
                        weighted.add(sum, y, b, h, i, d);
                        sum.expect(expected);
                    }
        expected.check(
            bench->download(bench->head_sums(bench->upload(weighted.weights), y.view)));
    }
}

/// Checks add_head_sums: y has `y_heads` heads, and the destination has `into` heads.
inline void check_added_sums(Bench& bench, const HeadCase& test_case, std::int64_t into,
                             std::int64_t y_heads, DType dtype,
                             const HeadSumOptions& options) {
    CAPTURE(text_of(test_case), into, options.transpose, options.factor);
    const HeadOperand y(bench, test_case, y_heads, test_case.n, dtype, "y");
    const HeadOperand destination(bench, test_case, into, test_case.m, dtype,
                                  "destination");
    const WeightedHeads weighted(test_case, dtype, options.transpose);
    bench->add_head_sums(destination.view, bench->upload(weighted.weights), y.view,
                         options);
    Expected expected(destination.values.shape(), dtype);
    const std::int64_t group = test_case.heads / into;
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
    for (const HeadCase& test_case : head_cases()) {
        check_added_sums(bench, test_case, test_case.heads, test_case.few, dtype,
                         options);
        // Each of the few heads gets the sum over the heads that it serves.
        if (test_case.few < test_case.heads)
            check_added_sums(bench, test_case, test_case.few, test_case.heads, dtype,
                             options);
    }
}

TEST_CASE("Queries, keys and values may be columns of one tensor", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const HeadCase test_case{6, 6, 2, 2, 2, 3};
    Bench bench;
    const HostTensor values = random_values({6, 2, 18}, dtype, "all");
    const Tensor all = bench->upload(values);
    Heads of_all[3];
    Heads alone[3];
    for (std::int64_t part = 0; part < 3; ++part) {
        const Tensor tensor = bench->empty({6, 2, 6}, dtype);
        bench->copy_columns(tensor, 0, all, part * 6, 6);
        of_all[part] = {all, test_case.heads, test_case.width, part * 6};
        alone[part] = {tensor, test_case.heads, test_case.width, 0};
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
