#pragma once

#include <algorithm>

#include "tests/device/attention_definition.hpp"

namespace lockstep::test {

/// Keys [first, first + count).
struct KeyBlock {
    std::int64_t first, count;
};

enum class BlockOrder { rising, falling, inside_out };

/// Returns blocks that cover all n keys, with up to `longest` keys each.
inline std::vector<KeyBlock> blocks_of(std::int64_t n, std::int64_t longest,
                                       BlockOrder order = BlockOrder::rising) {
    std::vector<KeyBlock> blocks;
    for (std::int64_t first = 0; first < n; first += longest)
        blocks.push_back({first, std::min(longest, n - first)});
    if (order == BlockOrder::falling) std::reverse(blocks.begin(), blocks.end());
    if (order == BlockOrder::inside_out)
        std::rotate(blocks.begin(),
                    blocks.begin() + static_cast<std::ptrdiff_t>(blocks.size() / 2),
                    blocks.end());
    return blocks;
}

/// Returns the heads with only one block of their keys and values.
inline AttentionHeads with_keys(const AttentionHeads& heads, const KeyBlock& block) {
    return {heads.queries, rows_of(heads.keys, block.first, block.count),
            rows_of(heads.values, block.first, block.count)};
}

inline AttentionOptions with_keys(AttentionOptions options, const KeyBlock& block) {
    options.keys.first += block.first;
    return options;
}

/// Attention to these blocks of keys, one after the other.
struct Attended {
    Attended(Bench& bench, const AttentionHeads& heads, const AttentionOptions& options,
             const std::vector<KeyBlock>& blocks) {
        state = bench->begin_attention(heads.queries);
        for (const KeyBlock& block : blocks)
            bench->attend(state, with_keys(heads, block), with_keys(options, block));
        log_sum_exp = bench->finish_attention(state);
    }

    void check(Bench& bench, const AttentionDefinition& definition) const {
        definition.y().check(bench->download(state.y));
        definition.log_sum_exp().check(bench->download(log_sum_exp));
    }

    OnlineAttention state;
    Tensor log_sum_exp;
};

/// Returns the factor that makes the largest |score| equal to `reach`.
inline double factor_to_reach(const AttentionOperands& operands, double reach) {
    const AttentionDefinition definition(operands, {});
    const HeadCase& test_case = operands.test_case;
    double most = 0;
    for (std::int64_t b = 0; b < test_case.batches; ++b)
        for (std::int64_t h = 0; h < test_case.heads; ++h)
            for (std::int64_t i = 0; i < test_case.m; ++i)
                for (const SeenKey& seen : definition.row(b, h, i).keys)
                    most = std::max(most, std::abs(seen.score));
    return reach / most;
}

/// Cases that are small enough for the emulator. Rows and widths are below, at and beyond
/// tiles and vectors.
inline std::vector<HeadCase> attention_cases() {
    return {{1, 1, 1, 1, 1, 1},           {7, 7, 2, 3, 1, 5, 2, 3},
            {65, 64, 1, 2, 2, 16, 0, 4},  {7, 65, 1, 2, 1, 33, 1, 0},
            {64, 130, 1, 1, 1, 5, 3, 0},  {130, 7, 1, 1, 1, 100},
            {7, 65, 1, 3, 1, 64, 16, 16}, {2, 130, 1, 2, 2, 256},
            {1, 65, 3, 6, 2, 8},          {5, 300, 1, 2, 1, 9},
            {130, 300, 1, 1, 1, 3}};
}

/// Cases for bf16, for which some devices use tensor cores: widths that tensor cores
/// accept and others, rows below, at and beyond tiles, and heads that begin inside a
/// vector.
inline std::vector<HeadCase> attention_cases_in_bf16() {
    return {{1, 1, 1, 1, 1, 64},           {70, 130, 1, 2, 1, 64},
            {64, 64, 2, 2, 2, 64, 8, 16},  {130, 200, 1, 1, 1, 64, 1, 0},
            {65, 97, 1, 4, 2, 128, 0, 64}, {5, 70, 2, 2, 2, 128, 3, 0},
            {70, 70, 1, 1, 1, 64, 4, 0},   {9, 70, 1, 2, 1, 40}};
}

/// The type of the numbers in heads, and how many columns each head has.
struct HeadType {
    DType dtype;
    std::int64_t width;
};

inline std::string text_of(const HeadType& type) {
    return fmt::format("{} of width {}", name_of(type.dtype), type.width);
}

/// Returns all types; bf16 has a width that tensor cores accept.
inline std::vector<HeadType> head_types(std::int64_t width) {
    return {{DType::f32, width}, {DType::f64, width}, {DType::bf16, 64}};
}

/// Queries and keys of a sequence that is sharded over three ranks.
struct DealtCase {
    TokenRows queries;
    std::int64_t m;
    TokenRows keys;
    std::int64_t n;
};

/// Returns these cases: each rank's queries with all keys, rows that cross from one
/// rank's share to the next, queries and keys in two orders, and long shares.
inline std::vector<DealtCase> dealt_cases(TokenOrder order) {
    const TokenRows all{order, 3, 22, 0}, more{order, 3, 100, 0};
    const auto from = [](TokenRows tokens, std::int64_t row) {
        tokens.first = row;
        return tokens;
    };
    return {{all.of_rank(0), 22, all, 66},         {all.of_rank(1), 22, all, 66},
            {all.of_rank(2), 22, all, 66},         {from(all, 13), 30, all, 66},
            {from(all, 13), 7, from(all, 13), 30}, {from(all, 13), 30, from({}, 9), 25},
            {from({}, 21), 25, from(all, 13), 30}, {from(more, 90), 20, more, 300},
            {from(more, 60), 200, more, 300}};
}

}  // namespace lockstep::test
