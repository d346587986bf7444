#pragma once

#include <cmath>
#include <vector>

#include "tests/device/head_operand.hpp"

namespace lockstep::test {

/// Rows of a sequence, and the tokens in these rows.
struct RotatedRows {
    TokenRows rows;
    std::vector<std::int64_t> tokens;
};

inline std::vector<RotatedRows> rotated_rows() {
    return {{{}, {0, 1, 2, 3}},
            {{TokenOrder::contiguous, 1, 0, 100000}, {100000, 100001, 100002, 100003}},
            {{TokenOrder::striped, 3, 4, 4}, {1, 4, 7, 10}},
            {{TokenOrder::zigzag, 2, 4, 0}, {0, 1, 6, 7}},
            {{TokenOrder::zigzag, 2, 4, 2}, {6, 7, 2, 3}}};
}

/// Four tokens. Half a head is smaller than a vector, equal to a vector, or larger.
inline std::vector<HeadCase> rotated_heads() {
    return {{4, 4, 1, 1, 1, 2},
            {4, 4, 2, 3, 3, 6, 5, 1},
            {4, 4, 3, 2, 2, 32, 1},
            {4, 4, 1, 2, 2, 74, 0, 3}};
}

/// q cos + rotate_half(q) sin, as in the published code of Llama's models.
inline Expected rotated(const HeadOperand& x, const HeadOperand& into,
                        const std::vector<std::int64_t>& tokens, double base,
                        double direction = 1) {
    const DType dtype = x.values.dtype();
    const std::int64_t width = x.view.width, half = width / 2;
    Expected expected(into.values.shape(), dtype);
    into.each_element([&](std::int64_t b, std::int64_t h, std::int64_t i,
                          std::int64_t j) {
        if (h < 0) return expected.add(into.outside(b, i, j), 0);
        const double exponent =
            -2 * static_cast<double>(j % half) / static_cast<double>(width);
        const double angle = static_cast<double>(tokens[static_cast<std::size_t>(i)]) *
                             std::pow(base, exponent);
        const double own = x.at(b, h, i, j);
        const double other =
            j < half ? -x.at(b, h, i, j + half) : x.at(b, h, i, j - half);
        // Angles have rounding errors of f64.
        const double off = 1 + angle * epsilon_of(DType::f64) / epsilon_of(dtype);
        expected.add(own * std::cos(angle) + direction * other * std::sin(angle),
                     (std::abs(own) + std::abs(other)) * off);
    });
    return expected;
}

TEST_CASE("Rotary positions rotate pairs of numbers from both halves of a head", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const double base = GENERATE(1.0, 100.0, 10000.0);
    Bench bench;
    for (const HeadCase& test_case : rotated_heads())
        for (const auto& [rows, tokens] : rotated_rows()) {
            CAPTURE(text_of(test_case), tokens, base);
            HeadCase other = test_case;
            std::swap(other.before, other.behind);
            const HeadOperand x(bench, test_case, test_case.heads, test_case.m, dtype,
                                "x");
            const HeadOperand y(bench, other, test_case.heads, test_case.m, dtype, "y");
            bench->rotate(y.view, x.view, rows, {base});
            rotated(x, y, tokens, base).check(bench->download(y.view.tensor));
            REQUIRE(bench->download(x.view.tensor) == x.values);
            bench->rotate(x.view, x.view, rows, {base});
            rotated(x, x, tokens, base).check(bench->download(x.view.tensor));
        }
}

TEST_CASE("Rows are rotated to positions that are in a tensor", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    for (const HeadCase& test_case : rotated_heads()) {
        CAPTURE(text_of(test_case));
        const HeadOperand x(bench, test_case, test_case.heads, test_case.m, dtype, "x");
        const HostTensor places =
            random_indices({test_case.m, test_case.batches}, 5000, "places");
        bench->rotate_at(x.view, x.view, bench->upload(places), {100});
        const Shape flat{test_case.m * test_case.batches, 1, x.view.columns()};
        const HostTensor turned = bench->download(x.view.tensor).reshaped(flat);
        const HostTensor before = HostTensor(x.values).reshaped(flat);
        for (std::int64_t i = 0; i < test_case.m; ++i)
            for (std::int64_t b = 0; b < test_case.batches; ++b) {
                // This row, rotated separately with its position as a number.
                const std::int64_t row = i * test_case.batches + b;
                const Tensor alone = bench->upload(before.rows(row, 1));
                const Heads heads{alone, test_case.heads, test_case.width,
                                  test_case.before};
                const auto position = static_cast<std::int64_t>(places.at(row));
                bench->rotate(heads, heads, {TokenOrder::contiguous, 1, 0, position},
                              {100});
                REQUIRE(bench->download(alone) == turned.rows(row, 1));
            }
    }
}

TEST_CASE("Turning back is the backward of turning", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    for (const HeadCase& test_case : rotated_heads())
        for (const auto& [rows, tokens] : rotated_rows()) {
            CAPTURE(text_of(test_case), tokens);
            const HeadOperand dy(bench, test_case, test_case.heads, test_case.m, dtype,
                                 "dy");
            const HeadOperand dx(bench, test_case, test_case.heads, test_case.m, dtype,
                                 "dx");
            bench->rotate(dx.view, dy.view, rows, {10000, true});
            rotated(dy, dx, tokens, 10000, -1).check(bench->download(dx.view.tensor));
            // A rotation's transpose is its inverse.
            bench->rotate(dx.view, dx.view, rows);
            const HostTensor back = bench->download(dx.view.tensor);
            Expected expected(back.shape(), dtype);
            dx.each_element(
                [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
                    if (h < 0)
                        expected.add(dx.outside(b, i, j), 0);
                    else
                        expected.add(dy.at(b, h, i, j), 4);
                });
            expected.check(back);
        }
}

TEST_CASE("The product of a query and a key depends only on their distance", kTags) {
    Bench bench;
    const HeadCase test_case{6, 6, 2, 2, 2, 8};
    const HeadOperand q(bench, test_case, 2, 6, DType::f64, "q");
    const HeadOperand k(bench, test_case, 2, 6, DType::f64, "k");
    const auto products = [&](std::int64_t first) {
        const HeadOperand to_q(bench, test_case, 2, 6, DType::f64, "to q");
        const HeadOperand to_k(bench, test_case, 2, 6, DType::f64, "to k");
        const TokenRows rows{TokenOrder::contiguous, 1, 0, first};
        bench->rotate(to_q.view, q.view, rows);
        bench->rotate(to_k.view, k.view, rows);
        return bench->download(bench->head_products(to_q.view, to_k.view));
    };
    const HostTensor early = products(0), late = products(300);
    const HostTensor plain = bench->download(bench->head_products(q.view, k.view));
    double turned = 0;
    for (std::int64_t i = 0; i < early.elements(); ++i) {
        REQUIRE_THAT(late.at(i), Catch::Matchers::WithinAbs(early.at(i), 1e-12));
        turned = std::max(turned, std::abs(early.at(i) - plain.at(i)));
    }
    REQUIRE(turned > 0.1);
}

TEST_CASE("Empty heads stay empty", kTags) {
    Bench bench;
    const Heads none{bench->empty({0, 2, 8}, DType::f32), 2, 4};
    bench->rotate(none, none);
    REQUIRE(bench->download(none.tensor).elements() == 0);
}

}  // namespace lockstep::test
