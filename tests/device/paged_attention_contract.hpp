#pragma once

#include <numeric>

#include "tests/device/head_operand.hpp"

namespace lockstep::test {

/// Sequences on pages that are in no particular order. The rows of a pass are the last
/// tokens of each sequence.
struct PagedCase {
    std::int64_t heads, few, width, value_width;
    std::int64_t of_page = 4;
    /// Each sequence's number of tokens before the pass, and in the pass.
    std::vector<std::pair<std::int64_t, std::int64_t>> sequences{{0, 5}, {7, 1}, {3, 0},
                                                                 {4, 4}, {0, 1}, {40, 3}};
    std::int64_t before = 3;  ///< columns before the queries

    /// Returns pages for all sequences. Sequences take turns in getting a page, so no two
    /// pages of one sequence are neighbours.
    PagedTokensRef tokens() const {
        PagedTokens tokens;
        for (const auto& [first, count] : sequences)
            tokens.sequences.push_back({first, count, {}});
        std::int32_t page = 0;
        for (bool more = true; more;) {
            more = false;
            for (PagedSequence& sequence : tokens.sequences) {
                const auto own = static_cast<std::int64_t>(sequence.pages.size());
                if (own * of_page >= sequence.tokens()) continue;
                sequence.pages.push_back(page++);
                more = true;
            }
        }
        return std::make_shared<const PagedTokens>(std::move(tokens));
    }
    std::int64_t columns() const { return few * (width + value_width); }
    std::int64_t pages() const {
        std::int64_t pages = 0;
        for (const auto& [first, count] : sequences)
            pages += (first + count + of_page - 1) / of_page;
        return pages;
    }
};

inline std::vector<PagedCase> paged_cases() {
    return {{1, 1, 1, 1},
            {2, 2, 8, 8, 3},
            {6, 2, 33, 20},
            {4, 1, 72, 64, 16},
            {2, 1, 576, 512}};
}

/// One pass's tensors on a device.
struct PagedPass {
    PagedPass(Bench& bench, const PagedCase& of_case, DType type)
        : test_case(of_case),
          tokens(test_case.tokens()),
          pages(random_values(
              {test_case.pages() + 1, test_case.of_page, test_case.columns()}, type,
              "pages")),
          x(random_values(
              {tokens->rows(), 1, test_case.before + test_case.heads * test_case.width},
              type, "queries")),
          on_pages(bench->upload(pages)),
          queries{bench->upload(x), test_case.heads, test_case.width, test_case.before},
          keys{on_pages, test_case.few, test_case.width, 0},
          values{on_pages, test_case.few, test_case.value_width,
                 test_case.few * test_case.width} {}

    /// Returns the number in column `column` of a token's keys and values on the pages.
    double stored(const PagedSequence& sequence, std::int64_t token,
                  std::int64_t column) const {
        const auto page = static_cast<std::size_t>(token / test_case.of_page);
        return pages.at(
            (sequence.pages[page] * test_case.of_page + token % test_case.of_page) *
                test_case.columns() +
            column);
    }
    /// Adds to `expected` the y of one head, by definition, for a row with this token.
    void expect(Expected& expected, const PagedSequence& sequence, std::int64_t row,
                std::int64_t token, std::int64_t head, double factor) const {
        const std::int64_t serving = head / (test_case.heads / test_case.few);
        std::vector<double> weights;
        double most = -HUGE_VAL, sum = 0, size = 0;
        for (std::int64_t key = 0; key <= token; ++key) {
            double score = 0;
            for (std::int64_t j = 0; j < test_case.width; ++j)
                score += factor *
                         x.at(row * x.shape().columns() + test_case.before +
                              head * test_case.width + j) *
                         stored(sequence, key, serving * test_case.width + j);
            weights.push_back(score);
            most = std::max(most, score);
            size = std::max(size, std::abs(score));
        }
        for (double& weight : weights)
            sum += weight = std::exp(weight - most);
        for (std::int64_t j = 0; j < test_case.value_width; ++j) {
            double y = 0, terms = 0;
            for (std::int64_t key = 0; key <= token; ++key) {
                const double term = weights[static_cast<std::size_t>(key)] / sum *
                                    stored(sequence, key,
                                           test_case.few * test_case.width +
                                               serving * test_case.value_width + j);
                y += term;
                terms += std::abs(term);
            }
            // A weight's relative error is the error of its score, a sum of `width` terms
            // of about `factor` each.
            const auto width = static_cast<double>(test_case.width);
            const double off = 4 + 2 * size + factor * width;
            expected.add(y, terms * off, static_cast<double>(token + 1));
        }
    }

    PagedCase test_case;
    PagedTokensRef tokens;
    HostTensor pages, x;
    Tensor on_pages;
    Heads queries, keys, values;
};

TEST_CASE("Rows attend to their own sequence's keys on pages, up to their token", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const double factor = GENERATE(1.0, 0.25);
    for (const PagedCase& test_case : paged_cases()) {
        CAPTURE(test_case.heads, test_case.few, test_case.width, test_case.value_width,
                test_case.of_page);
        Bench bench;
        const PagedPass pass(bench, test_case, dtype);
        const HostTensor y = bench->download(bench->attend_pages(
            {pass.queries, pass.keys, pass.values}, pass.tokens, factor));
        REQUIRE(y.shape() == Shape{14, 1, test_case.heads * test_case.value_width});
        Expected expected(y.shape(), dtype);
        std::int64_t row = 0;
        for (const PagedSequence& sequence : pass.tokens->sequences)
            for (std::int64_t i = 0; i < sequence.count; ++i, ++row)
                for (std::int64_t head = 0; head < test_case.heads; ++head)
                    pass.expect(expected, sequence, row, sequence.first + i, head,
                                factor);
        expected.check(y);
    }
}

TEST_CASE("A row's attention has the same bits on other pages, and beside other rows",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64, DType::bf16);
    for (PagedCase test_case : paged_cases()) {
        CAPTURE(test_case.heads, test_case.width, test_case.value_width);
        Bench bench;
        const PagedPass all(bench, test_case, dtype);
        const HostTensor y = bench->download(
            bench->attend_pages({all.queries, all.keys, all.values}, all.tokens, 0.5));
        // The keys are the same, but the pages of each sequence have another size and are
        // in reverse order. One row is computed at a time.
        test_case.of_page = test_case.of_page == 4 ? 7 : 4;
        const Tensor other = bench->zeros(
            {test_case.pages(), test_case.of_page, test_case.columns()}, dtype);
        auto last = static_cast<std::int32_t>(test_case.pages());
        std::int64_t row = 0;
        for (const PagedSequence& sequence : all.tokens->sequences) {
            PagedSequence moved{0, sequence.tokens(), {}};
            while (static_cast<std::int64_t>(moved.pages.size()) * test_case.of_page <
                   moved.count)
                moved.pages.push_back(--last);
            HostTensor stored({moved.count, 1, test_case.columns()}, dtype);
            for (std::int64_t i = 0; i < stored.elements(); ++i)
                stored.set(i, all.stored(sequence, i / test_case.columns(),
                                         i % test_case.columns()));
            bench->store_pages(other, bench->upload(stored), 0,
                               std::make_shared<const PagedTokens>(PagedTokens{{moved}}));
            for (std::int64_t i = 0; i < sequence.count; ++i, ++row) {
                PagedSequence one = moved;
                one.first = sequence.first + i;
                one.count = 1;
                const HostTensor alone = bench->download(bench->attend_pages(
                    {{all.queries.tensor.rows(row, 1), test_case.heads, test_case.width,
                      test_case.before},
                     {other, test_case.few, test_case.width, 0},
                     {other, test_case.few, test_case.value_width,
                      test_case.few * test_case.width}},
                    std::make_shared<const PagedTokens>(PagedTokens{{one}}), 0.5));
                REQUIRE(alone == y.rows(row, 1));
            }
        }
    }
}

TEST_CASE("A second term of scores equals more columns of queries and keys", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    // All 40 columns are scored at once, or first 8 and then 32.
    const PagedCase test_case{4, 1, 40, 8};
    const PagedPass pass(bench, test_case, dtype);
    const HostTensor whole = bench->download(
        bench->attend_pages({pass.queries, pass.keys, pass.values}, pass.tokens, 0.5));
    const std::int64_t rows = pass.tokens->rows();
    const auto columns = [&](std::int64_t from, std::int64_t width) {
        HostTensor some({rows, 1, test_case.heads * width}, dtype);
        for (std::int64_t i = 0; i < some.elements(); ++i) {
            const std::int64_t row = i / (test_case.heads * width),
                               at = i % (test_case.heads * width);
            some.set(i, pass.x.at(row * pass.x.shape().columns() + test_case.before +
                                  at / width * test_case.width + from + at % width));
        }
        return Heads{bench->upload(some), test_case.heads, width, 0};
    };
    const HostTensor parts = bench->download(bench->attend_pages(
        {columns(0, 8), {pass.on_pages, 1, 8, 0}, pass.values},
        {columns(8, 32), {pass.on_pages, 1, 32, 8}}, pass.tokens, 0.5));
    Expected expected(whole.shape(), dtype);
    for (std::int64_t i = 0; i < whole.elements(); ++i)
        expected.add(whole.at(i), 1, 40);
    expected.check(parts);
}

TEST_CASE("Each head is multiplied by a matrix of its own", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64, DType::bf16);
    const bool transposed = GENERATE(false, true);
    const bool row_by_row = GENERATE(false, true);
    const std::int64_t batches = GENERATE(1, 2);
    const std::int64_t m = GENERATE(1, 5, 40);
    const std::int64_t heads = 3, width = 7, n = 10;
    CAPTURE(dtype, transposed, row_by_row, batches, m);
    Bench bench;
    const HeadCase test_case{m, m, batches, heads, heads, width, 2, 1};
    const HeadOperand x(bench, test_case, heads, m, dtype, "x");
    const HostTensor matrices = random_values(
        transposed ? Shape{heads * n, width} : Shape{heads * width, n}, dtype, "w");
    const HostTensor y = bench->download(
        bench->head_matmul(x.view, bench->upload(matrices),
                           {.transpose_b = transposed, .row_by_row = row_by_row}));
    REQUIRE(y.shape() == Shape{m, batches, heads * n});
    Expected expected(y.shape(), dtype);
    for (std::int64_t i = 0; i < y.elements(); ++i) {
        const std::int64_t column = i % n, head = i / n % heads,
                           batch = i / (n * heads) % batches,
                           row = i / (n * heads * batches);
        Sum sum;
        for (std::int64_t k = 0; k < width; ++k)
            sum.add(x.at(batch, head, row, k) *
                    matrices.at(transposed ? (head * n + column) * width + k
                                           : (head * width + k) * n + column));
        sum.expect(expected);
    }
    expected.check(y);
}

TEST_CASE("Row by row, a head's products have the same bits for any number of rows",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64, DType::bf16);
    const bool transposed = GENERATE(false, true);
    Bench bench;
    const Tensor x = bench->upload(random_values({70, 1, 24}, dtype, "x"));
    const Tensor w = bench->upload(
        random_values(transposed ? Shape{3 * 33, 8} : Shape{3 * 8, 33}, dtype, "w"));
    const RowByRow scope(*bench.device);
    const auto product = [&](std::int64_t first, std::int64_t count) {
        return bench->download(bench->head_matmul({x.rows(first, count), 3, 8}, w,
                                                  {.transpose_b = transposed}));
    };
    const HostTensor all = product(0, 70);
    for (const std::int64_t count : {1, 2, 3, 5, 64, 69})
        for (const std::int64_t first : {std::int64_t{0}, 70 - count})
            REQUIRE(product(first, count) == all.rows(first, count));
}

TEST_CASE("Columns of rows are stored at their tokens' places on pages", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64, DType::bf16);
    const PagedCase test_case{1, 1, 3, 2};
    Bench bench;
    PagedPass pass(bench, test_case, dtype);
    const HostTensor x = random_values({14, 9}, dtype, "x");
    bench->store_pages(pass.on_pages, bench->upload(x), 2, pass.tokens);
    HostTensor expected = pass.pages;
    std::int64_t row = 0;
    for (const PagedSequence& sequence : pass.tokens->sequences)
        for (std::int64_t i = 0; i < sequence.count; ++i, ++row)
            for (std::int64_t j = 0; j < 5; ++j) {
                const std::int64_t token = sequence.first + i;
                const std::int64_t page =
                    sequence.pages[static_cast<std::size_t>(token / test_case.of_page)];
                expected.set(
                    (page * test_case.of_page + token % test_case.of_page) * 5 + j,
                    x.at(row * 9 + 2 + j));
            }
    REQUIRE(row == 14);
    REQUIRE(bench->download(pass.on_pages) == expected);
}

TEST_CASE("Attention over pages without rows is empty", kTags) {
    Bench bench;
    const Tensor pages = bench->zeros({2, 4, 6}, DType::f32);
    const auto none = std::make_shared<const PagedTokens>(PagedTokens{{{3, 0, {1}}}});
    bench->store_pages(pages, bench->zeros({0, 1, 6}, DType::f32), 0, none);
    const Tensor y = bench->attend_pages(
        {{bench->zeros({0, 1, 6}, DType::f32), 2, 3}, {pages, 1, 3}, {pages, 1, 3, 3}},
        none);
    REQUIRE(y.shape() == Shape{0, 1, 6});
}

}  // namespace lockstep::test
