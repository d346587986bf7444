#pragma once

#include <cstdint>

#include "src/device/token_rows.hpp"

namespace lockstep {

/// A way to combine the values of tensors or ranks.
enum class Reduction : std::uint8_t { sum, product, minimum, maximum, mean };

constexpr const char* name_of(Reduction reduction) {
    constexpr const char* kNames[] = {"sum", "product", "minimum", "maximum", "mean"};
    return kNames[static_cast<int>(reduction)];
}

/// x Phi(x) itself, or its approximation by tanh, which GPT-2 uses (Hendrycks & Gimpel
/// 2016, 1606.08415, section 2).
enum class GeluForm : std::uint8_t { exact, tanh };

struct MatmulOptions {
    bool transpose_a = false;
    bool transpose_b = false;
    /// Adds to the destination's old values.
    bool accumulate = false;
    /// The bits of a row do not depend on the number of rows. Otherwise a backend may add
    /// up in another order if there are more rows. Refused if a is transposed.
    bool row_by_row = false;
};

struct SoftmaxOptions {
    /// x (…, m, n) has m queries and n keys. A query sees only keys of tokens up to its
    /// own token; results for the other keys are 0.
    bool causal = false;
    TokenRows queries{};  ///< the queries' tokens, if causal
    TokenRows keys{};
};

struct AttentionOptions {
    double factor = 1;    ///< of the scores
    bool causal = false;  ///< a query sees the keys of tokens up to its own token
    TokenRows queries{};  ///< the queries' tokens, if causal
    TokenRows keys{};
};

/// Rotary positions (Su et al. 2021, RoFormer, 2104.09864, section 3.2.2).
struct RotaryOptions {
    double base = 10000;   ///< pair j of `width` columns turns by base^(-2 j / width)
    bool inverse = false;  ///< turns back, as backward does with gradients
};

struct HeadSumOptions {
    bool transpose = false;  ///< transposes the weights (m, n); the sums are over m
    double factor = 1;
};

/// A shard of a vocabulary: a table's rows, or logits' columns, are entries [first, first
/// + extent). Entries from `whole` on are padding, which no index names.
struct VocabularyShard {
    std::int64_t first = 0;
    std::int64_t whole = 0;  ///< entries of the vocabulary; 0: the shard is all of it
};

/// Says which numbers of a random stream are a tensor's elements. The tensor is a part of
/// a whole matrix: it begins at element `offset`, and its rows are `pitch` apart. Pitch 0
/// means the number of columns (contiguous). An offset converts to a contiguous part.
struct RandomPart {
    constexpr RandomPart(std::int64_t first = 0, std::int64_t apart = 0)
        : offset(first), pitch(apart) {}

    std::int64_t offset;
    std::int64_t pitch;
};

/// Columns are split into `count` groups of equal size, side by side, and only `chosen`
/// groups are searched. A group's score is the sum of its `best` largest values. The
/// groups with the highest scores are chosen; if scores are equal, the first groups. So a
/// token's experts are on few nodes (DeepSeek-AI 2024, DeepSeek-V3, 2412.19437, section
/// 2.1.2). Default: one group, all columns.
struct ColumnGroups {
    static constexpr std::int64_t kMost = 32;
    std::int64_t count = 1;
    std::int64_t chosen = 1;
    std::int64_t best = 1;
};

struct SgdOptions {
    double learning_rate = 0.01;
    double momentum = 0;  ///< velocity = momentum * velocity + gradient
    double weight_decay = 0;
};

struct AdamWOptions {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.01;
};

}  // namespace lockstep
