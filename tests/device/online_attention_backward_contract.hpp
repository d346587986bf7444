#pragma once

#include "tests/device/attention_backward_definition.hpp"

namespace lockstep::test {

/// Runs the backward block by block, for each list of blocks, from the same gradients.
inline void check_backward(Bench& bench, const AttentionOperands& operands,
                           const AttentionOptions& options,
                           const std::vector<std::vector<KeyBlock>>& ways) {
    const AttentionDefinition definition(operands, options);
    const BackwardOperands backward(bench, operands, definition);
    const BackwardDefinition expected(operands, backward, definition, options.factor);
    for (const std::vector<KeyBlock>& blocks : ways) {
        CAPTURE(blocks.size());
        backward.restore(bench);
        backward.run(bench, operands, options, blocks);
        expected.check(bench);
    }
}

TEST_CASE("Attention's backward adds gradients by definition, block by block", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const bool causal = GENERATE(false, true);
    Bench bench;
    for (const HeadCase& test_case : attention_cases()) {
        CAPTURE(text_of(test_case), causal);
        const AttentionOperands operands(bench, test_case, dtype);
        AttentionOptions options{0.7, causal};
        options.queries.first = 3;
        check_backward(bench, operands, options,
                       {blocks_of(test_case.n, test_case.n),
                        blocks_of(test_case.n, 24, BlockOrder::inside_out)});
    }
}

TEST_CASE("Causal attention's backward compares tokens, in any order of sharding",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const TokenOrder order =
        GENERATE(TokenOrder::contiguous, TokenOrder::striped, TokenOrder::zigzag);
    Bench bench;
    for (const DealtCase& dealt : dealt_cases(order)) {
        CAPTURE(name_of(order), dealt.queries.first, dealt.m, dealt.keys.first, dealt.n);
        const AttentionOperands operands(bench, {dealt.m, dealt.n, 1, 2, 1, 5}, dtype);
        check_backward(
            bench, operands, {0.5, true, dealt.queries, dealt.keys},
            {blocks_of(dealt.n, 22, BlockOrder::falling), blocks_of(dealt.n, dealt.n)});
    }
}

TEST_CASE("Attention's backward of heads in bf16 equals its definition", kTags) {
    const bool causal = GENERATE(false, true);
    Bench bench;
    for (const HeadCase& test_case : attention_cases_in_bf16()) {
        CAPTURE(text_of(test_case), causal);
        const AttentionOperands operands(bench, test_case, DType::bf16);
        AttentionOptions options{0.3, causal};
        options.queries.first = 3;
        check_backward(bench, operands, options, {blocks_of(test_case.n, test_case.n)});
    }
}

TEST_CASE("Causal attention's backward in bf16 compares tokens", kTags) {
    const TokenOrder order =
        GENERATE(TokenOrder::contiguous, TokenOrder::striped, TokenOrder::zigzag);
    Bench bench;
    for (const DealtCase& dealt : dealt_cases(order)) {
        CAPTURE(name_of(order), dealt.queries.first, dealt.m, dealt.keys.first, dealt.n);
        const AttentionOperands operands(bench, {dealt.m, dealt.n, 1, 1, 1, 64},
                                         DType::bf16);
        check_backward(bench, operands, {0.2, true, dealt.queries, dealt.keys},
                       {blocks_of(dealt.n, dealt.n)});
    }
}

TEST_CASE("Attention and its backward multiply scores by any number", kTags) {
    const HeadType type = GENERATE(from_range(head_types(40)));
    const double factor = GENERATE(-0.3, 0.0);
    const bool causal = GENERATE(false, true);
    CAPTURE(text_of(type), factor, causal);
    Bench bench;
    const AttentionOperands operands(bench, {5, 70, 1, 2, 1, type.width}, type.dtype);
    AttentionOptions options{factor, causal};
    options.queries.first = 3;
    const auto blocks = blocks_of(70, 70);
    Attended(bench, operands.heads(), options, blocks)
        .check(bench, AttentionDefinition(operands, options));
    check_backward(bench, operands, options, {blocks});
}

TEST_CASE("Attention's backward is as exact with large scores", kTags) {
    const HeadType type = GENERATE(from_range(head_types(33)));
    const double reach = GENERATE(60.0, 1000.0);
    CAPTURE(text_of(type), reach);
    Bench bench;
    const AttentionOperands operands(bench, {7, 65, 1, 2, 1, type.width}, type.dtype);
    check_backward(bench, operands, {factor_to_reach(operands, reach)},
                   {blocks_of(65, 65)});
    if (type.dtype != DType::bf16)
        check_backward(bench, operands, {factor_to_reach(operands, reach)},
                       {blocks_of(65, 7)});
}

TEST_CASE("Queries that see no key, and keys that no query sees, have no gradient",
          kTags) {
    const HeadType type = GENERATE(from_range(head_types(5)));
    CAPTURE(text_of(type));
    Bench bench;
    const AttentionOperands operands(bench, {70, 40, 1, 2, 1, type.width}, type.dtype);
    // Query i sees keys [0, i - 66]: the first 66 queries see no key, and no query sees
    // keys 4 and up.
    AttentionOptions options{1, true};
    options.keys.first = 66;
    const AttentionDefinition definition(operands, options);
    const BackwardOperands backward(bench, operands, definition);
    REQUIRE(backward.log_sum_exp.at(65) == -INFINITY);
    backward.run(bench, operands, options, {{0, 40}});
    const auto unchanged = [&](const HeadOperand& operand, std::int64_t from,
                               std::int64_t to) {
        const HostTensor now = bench->download(operand.view.tensor);
        REQUIRE(now.rows(from, to - from) == operand.values.rows(from, to - from));
        REQUIRE(!(now == operand.values));
    };
    unchanged(backward.dq, 0, 66);
    unchanged(backward.dk, 4, 40);
    unchanged(backward.dv, 4, 40);

    // If no query sees a key, nothing is run.
    const std::size_t operations = bench.monitor.operations.size();
    backward.restore(bench);
    options.keys.first = 70;
    backward.run(bench, operands, options, {{0, 40}, {0, 0}});
    REQUIRE(bench->download(backward.dq.view.tensor) == backward.dq.values);
    REQUIRE(bench.monitor.operations.size() == operations);
}

TEST_CASE("Gradients of queries, keys and values may be columns of one tensor", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const HeadCase test_case{9, 9, 2, 4, 2, 3};
    Bench bench;
    const AttentionOperands operands(bench, test_case, dtype);
    const AttentionOptions options{1, true};
    const AttentionDefinition definition(operands, options);
    const BackwardOperands backward(bench, operands, definition);
    const Tensor all = bench->zeros({test_case.m, test_case.batches, 24}, dtype);
    const AttentionHeads gradients{{all, 4, 3, 0}, {all, 2, 3, 12}, {all, 2, 3, 18}};
    bench->attend_backward(gradients, operands.heads(), backward.backward, options);
    for (const Tensor* alone :
         {&backward.dq.view.tensor, &backward.dk.view.tensor, &backward.dv.view.tensor})
        bench->fill(*alone, 0);
    backward.run(bench, operands, options, {{0, test_case.n}});
    const auto same = [&](const Heads& part, const HeadOperand& alone) {
        const Tensor own = bench->empty(alone.values.shape(), dtype);
        bench->copy_columns(own, 0, all, part.first, own.shape().columns());
        REQUIRE(bench->download(own) == bench->download(alone.view.tensor));
    };
    same(gradients.queries, backward.dq);
    same(gradients.keys, backward.dk);
    same(gradients.values, backward.dv);
}

/// Returns the sum of dy y. Computes attention anew.
inline double attention_loss(Bench& bench, const AttentionOperands& operands,
                             const AttentionOptions& options, const HeadOperand& dy) {
    const Attended attended(bench, operands.heads(), options,
                            blocks_of(operands.test_case.n, 3));
    const HostTensor y = bench->download(attended.state.y);
    double loss = 0;
    for (std::int64_t i = 0; i < y.elements(); ++i)
        loss += y.at(i) * dy.values.at(i);
    return loss;
}

TEST_CASE("Attention's gradients equal finite differences", kTags) {
    Bench bench;
    const AttentionOperands operands(bench, {4, 6, 1, 2, 1, 3}, DType::f64);
    const AttentionOptions options{
        0.9, true, {TokenOrder::zigzag, 2, 4, 2}, {TokenOrder::zigzag, 2, 4, 0}};
    const BackwardOperands backward(bench, operands,
                                    AttentionDefinition(operands, options));
    const Attended attended(bench, operands.heads(), options, blocks_of(6, 3));
    const Tensor dy_y = bench->head_row_products(
        backward.dy.view,
        {attended.state.y, operands.test_case.heads, operands.test_case.width});
    for (const HeadOperand* gradient : {&backward.dq, &backward.dk, &backward.dv})
        bench->fill(gradient->view.tensor, 0);
    bench->attend_backward(backward.gradients(), operands.heads(),
                           {backward.dy.view.tensor, attended.log_sum_exp, dy_y},
                           options);
    const auto check = [&](const HeadOperand& operand, const HeadOperand& gradient) {
        const HostTensor got = bench->download(gradient.view.tensor);
        HostTensor moved = operand.values;
        for (std::int64_t i = 0; i < moved.elements(); ++i) {
            const auto loss_at = [&](double change) {
                moved.set(i, operand.values.at(i) + change);
                bench->upload_into(operand.view.tensor, moved);
                return attention_loss(bench, operands, options, backward.dy);
            };
            // The error is step^4 / 30 times the fifth derivative (at most about 100 for
            // scores below 3), plus roundings of 1e-15 / step: together 1e-11.
            const double step = 1e-3;
            const double slope = (8 * (loss_at(step) - loss_at(-step)) -
                                  (loss_at(2 * step) - loss_at(-2 * step))) /
                                 (12 * step);
            moved.set(i, operand.values.at(i));
            CAPTURE(i, got.at(i), slope);
            REQUIRE(std::abs(got.at(i) - slope) < 1e-10);
        }
        bench->upload_into(operand.view.tensor, operand.values);
    };
    check(operands.q, backward.dq);
    check(operands.k, backward.dk);
    check(operands.v, backward.dv);
}

}  // namespace lockstep::test
