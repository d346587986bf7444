#pragma once

#include "tests/device/attention_cases.hpp"
#include "tests/device/attention_definition.hpp"

namespace lockstep::test {

TEST_CASE(
    "Attention to keys block by block equals its definition, in any order of blocks",
    kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const bool causal = GENERATE(false, true);
    Bench bench;
    for (const HeadCase& test_case : attention_cases()) {
        CAPTURE(text_of(test_case), causal);
        const AttentionOperands operands(bench, test_case, dtype);
        // Queries are tokens 3 and up, so the first query sees four keys.
        AttentionOptions options{0.7, causal};
        options.queries.first = 3;
        const AttentionDefinition definition(operands, options);
        for (const auto& blocks : {blocks_of(test_case.n, test_case.n),
                                   blocks_of(test_case.n, 3, BlockOrder::inside_out),
                                   blocks_of(test_case.n, 24, BlockOrder::falling),
                                   blocks_of(test_case.n, 64)})
            Attended(bench, operands.heads(), options, blocks).check(bench, definition);
        for (const HeadOperand* operand : {&operands.q, &operands.k, &operands.v})
            REQUIRE(bench->download(operand->view.tensor) == operand->values);
    }
}

TEST_CASE("Causal attention compares tokens, in any order of sharding", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const TokenOrder order =
        GENERATE(TokenOrder::contiguous, TokenOrder::striped, TokenOrder::zigzag);
    Bench bench;
    for (const DealtCase& dealt : dealt_cases(order)) {
        CAPTURE(name_of(order), dealt.queries.first, dealt.m, dealt.keys.first, dealt.n);
        const AttentionOperands operands(bench, {dealt.m, dealt.n, 1, 2, 1, 5}, dtype);
        const AttentionOptions options{0.5, true, dealt.queries, dealt.keys};
        const AttentionDefinition definition(operands, options);
        // Rank by rank, as keys arrive around a ring, then all at once.
        for (const auto& blocks :
             {blocks_of(dealt.n, 22), blocks_of(dealt.n, 22, BlockOrder::falling),
              blocks_of(dealt.n, 15, BlockOrder::inside_out),
              blocks_of(dealt.n, dealt.n)})
            Attended(bench, operands.heads(), options, blocks).check(bench, definition);
    }
}

TEST_CASE("Attention to heads in bf16 equals its definition", kTags) {
    const bool causal = GENERATE(false, true);
    Bench bench;
    for (const HeadCase& test_case : attention_cases_in_bf16()) {
        CAPTURE(text_of(test_case), causal);
        const AttentionOperands operands(bench, test_case, DType::bf16);
        AttentionOptions options{0.3, causal};
        options.queries.first = 3;
        const AttentionDefinition definition(operands, options);
        for (const auto& blocks :
             {blocks_of(test_case.n, test_case.n), blocks_of(test_case.n, 24)})
            Attended(bench, operands.heads(), options, blocks).check(bench, definition);
    }
}

TEST_CASE("Causal attention in bf16 compares tokens", kTags) {
    const TokenOrder order =
        GENERATE(TokenOrder::contiguous, TokenOrder::striped, TokenOrder::zigzag);
    Bench bench;
    for (const DealtCase& dealt : dealt_cases(order)) {
        CAPTURE(name_of(order), dealt.queries.first, dealt.m, dealt.keys.first, dealt.n);
        const AttentionOperands operands(bench, {dealt.m, dealt.n, 1, 1, 1, 64},
                                         DType::bf16);
        const AttentionOptions options{0.2, true, dealt.queries, dealt.keys};
        Attended(bench, operands.heads(), options, blocks_of(dealt.n, dealt.n))
            .check(bench, AttentionDefinition(operands, options));
    }
}

TEST_CASE("Large scores neither overflow nor hide smaller scores", kTags) {
    const HeadType type = GENERATE(from_range(head_types(1)), HeadType{DType::f32, 33},
                                   HeadType{DType::f64, 33});
    const double reach = GENERATE(60.0, 1000.0);
    CAPTURE(text_of(type), reach);
    Bench bench;
    const AttentionOperands operands(bench, {7, 65, 1, 2, 1, type.width}, type.dtype);
    const AttentionOptions options{factor_to_reach(operands, reach)};
    const AttentionDefinition definition(operands, options);
    for (const auto& blocks :
         {blocks_of(65, 65), blocks_of(65, 1), blocks_of(65, 7, BlockOrder::falling)})
        Attended(bench, operands.heads(), options, blocks).check(bench, definition);
}

TEST_CASE("A query that sees no key has attention 0 and log-sum-exp -infinity", kTags) {
    const HeadType type = GENERATE(from_range(head_types(5)));
    CAPTURE(text_of(type));
    Bench bench;
    const AttentionOperands operands(bench, {70, 40, 1, 2, 1, type.width}, type.dtype);
    // Query i sees keys [0, i - 66], so queries 0 to 65 see no key. Other queries see
    // keys of some of the blocks; no query sees the other blocks.
    AttentionOptions options{1, true};
    options.keys.first = 66;
    const AttentionDefinition definition(operands, options);
    for (const auto& blocks :
         {blocks_of(40, 40), blocks_of(40, 1, BlockOrder::falling), blocks_of(40, 3)}) {
        const Attended attended(bench, operands.heads(), options, blocks);
        attended.check(bench, definition);
        const HostTensor y = bench->download(attended.state.y);
        const std::int64_t of_row = 2 * type.width;
        for (std::int64_t i = 0; i < 66 * of_row; ++i)
            REQUIRE(y.at(i) == 0);
        REQUIRE(y.at(66 * of_row) != 0);
    }
}

TEST_CASE("Keys that no query sees change nothing", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    const AttentionOperands operands(bench, {7, 9, 2, 2, 1, 4}, dtype);
    const OnlineAttention state = bench->begin_attention(operands.q.view);
    REQUIRE(bench->download(state.y) == HostTensor({7, 2, 8}, dtype));
    REQUIRE(bench->download(state.sum) == HostTensor({2, 2, 7}, dtype));
    bench->attend(state, operands.heads());
    const HostTensor y = bench->download(state.y), sum = bench->download(state.sum),
                     maximum = bench->download(state.maximum);
    const std::size_t operations = bench.monitor.operations.size();
    AttentionOptions options{1, true};
    options.keys.first = 7;
    bench->attend(state, operands.heads(), options);
    bench->attend(state, with_keys(operands.heads(), {0, 0}));
    REQUIRE(bench->download(state.y) == y);
    REQUIRE(bench->download(state.sum) == sum);
    REQUIRE(bench->download(state.maximum) == maximum);
    REQUIRE(bench.monitor.operations.size() == operations);
}

TEST_CASE("Attention of no queries and to no keys has its shapes", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    for (const HeadCase& test_case :
         {HeadCase{0, 5, 2, 2, 1, 3}, HeadCase{5, 0, 2, 2, 1, 3},
          HeadCase{5, 4, 0, 2, 1, 3}}) {
        CAPTURE(text_of(test_case));
        const AttentionOperands operands(bench, test_case, dtype);
        const Attended attended(bench, operands.heads(), {}, {{0, test_case.n}});
        attended.check(bench, AttentionDefinition(operands, {}));
        REQUIRE(bench->head_row_products(operands.q.view, operands.q.view).shape() ==
                Shape{test_case.batches, 2, test_case.m});
    }
}

TEST_CASE("The log-sum-exp replaces the maximum", kTags) {
    Bench bench;
    const AttentionOperands operands(bench, {3, 4, 1, 1, 1, 2}, DType::f32);
    const Attended attended(bench, operands.heads(), {}, blocks_of(4, 4));
    REQUIRE(attended.log_sum_exp.storage() == attended.state.maximum.storage());
    REQUIRE(bench->download(attended.log_sum_exp) ==
            bench->download(attended.state.maximum));
}

TEST_CASE("A NaN key makes NaN only the queries that see it", kTags) {
    const auto [dtype, width] = GENERATE(from_range(head_types(5)));
    const TokenOrder order = GENERATE(TokenOrder::contiguous, TokenOrder::zigzag);
    const std::int64_t longest = GENERATE(66, 5);
    const TokenRows tokens{order, 3, 22, 0};
    const std::int64_t bad = 37;
    Bench bench;
    AttentionOperands operands(bench, {66, 66, 1, 4, 2, width}, dtype);
    const AttentionOptions options{1, true, tokens, tokens};
    const AttentionDefinition definition(operands, options);
    operands.k.values.set(operands.k.place(0, 1, bad, 3), NAN);
    bench->upload_into(operands.k.view.tensor, operands.k.values);
    const Attended attended(bench, operands.heads(), options, blocks_of(66, longest));
    const HostTensor y = bench->download(attended.state.y);
    const HostTensor log_sum_exp = bench->download(attended.log_sum_exp);
    for (std::int64_t i = 0; i < 66; ++i)
        for (std::int64_t h = 0; h < 4; ++h) {
            const bool spoilt = h / 2 == 1 && definition.sees(i, bad);
            CAPTURE(i, h, spoilt);
            REQUIRE(std::isnan(log_sum_exp.at(h * 66 + i)) == spoilt);
            for (std::int64_t d = 0; d < width; ++d)
                REQUIRE(std::isnan(y.at((i * 4 + h) * width + d)) == spoilt);
        }
}

TEST_CASE("Online attention takes queries, keys and values out of one tensor", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t rows = 9, heads = 4, few = 2, width = 3;
    Bench bench;
    const Tensor all =
        bench->upload(random_values({rows, 2, (heads + 2 * few) * width}, dtype, "all"));
    const AttentionHeads together{{all, heads, width, 0},
                                  {all, few, width, heads * width},
                                  {all, few, width, (heads + few) * width}};
    const auto alone = [&](const Heads& part) {
        const std::int64_t columns = part.heads * width;
        const Tensor own = bench->empty({rows, 2, columns}, dtype);
        bench->copy_columns(own, 0, all, part.first, columns);
        return Heads{own, part.heads, width, 0};
    };
    const AttentionHeads apart{alone(together.queries), alone(together.keys),
                               alone(together.values)};
    const Attended got(bench, together, {1, true}, blocks_of(rows, 4));
    const Attended wanted(bench, apart, {1, true}, blocks_of(rows, 4));
    REQUIRE(bench->download(got.state.y) == bench->download(wanted.state.y));
    REQUIRE(bench->download(got.log_sum_exp) == bench->download(wanted.log_sum_exp));
}

TEST_CASE("Products of heads' rows equal their definition", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    for (const HeadCase& test_case : attention_cases()) {
        CAPTURE(text_of(test_case));
        const HeadOperand x(bench, test_case, test_case.heads, test_case.m, dtype, "x");
        const HeadOperand y(bench,
                            {test_case.m, test_case.n, test_case.batches, test_case.heads,
                             test_case.few, test_case.width, 4},
                            test_case.heads, test_case.m, dtype, "y");
        Expected expected({test_case.batches, test_case.heads, test_case.m}, dtype);
        for (std::int64_t b = 0; b < test_case.batches; ++b)
            for (std::int64_t h = 0; h < test_case.heads; ++h)
                for (std::int64_t i = 0; i < test_case.m; ++i) {
                    Sum sum;
                    for (std::int64_t d = 0; d < test_case.width; ++d)
                        sum.add(x.at(b, h, i, d) * y.at(b, h, i, d));
                    sum.expect(expected);
                }
        expected.check(bench->download(bench->head_row_products(x.view, y.view)));
    }
}

}  // namespace lockstep::test
