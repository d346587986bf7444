#pragma once

#include <cstdint>
#include <limits>

#include "src/comm/operation.hpp"
#include "src/core/philox.hpp"
#include "src/device/backend.hpp"
#include "src/device/heads.hpp"
#include "src/device/monitor.hpp"
#include "src/device/options.hpp"

namespace lockstep::lessons {

// What the structs consist of that go over the line, in order.

/// The last of an enumeration's values, which begin at 0.
template <typename Enum>
inline constexpr std::int64_t kLast = -1;
template <>
inline constexpr std::int64_t kLast<DType> = static_cast<std::int64_t>(DType::bf16);
template <>
inline constexpr std::int64_t kLast<Reduction> =
    static_cast<std::int64_t>(Reduction::mean);
template <>
inline constexpr std::int64_t kLast<TokenOrder> =
    static_cast<std::int64_t>(TokenOrder::zigzag);
template <>
inline constexpr std::int64_t kLast<Verb> = static_cast<std::int64_t>(kVerbs) - 1;
template <>
inline constexpr std::int64_t kLast<Phase> = static_cast<std::int64_t>(Phase::update);
template <>
inline constexpr std::int64_t kLast<MemoryCategory> = kMemoryCategories - 1;

/// A value to be filled in.
template <typename T>
T blank() {
    return T{};
}
template <>
inline RandomPart blank<RandomPart>() {
    return RandomPart{0};
}

template <typename Line>
void fields(Line& line, MatmulOptions& options) {
    line(options.transpose_a, options.transpose_b, options.accumulate);
}
template <typename Line>
void fields(Line& line, TokenRows& rows) {
    line(rows.order, rows.ranks, rows.share, rows.first);
}
template <typename Line>
void fields(Line& line, SoftmaxOptions& options) {
    line(options.causal, options.queries, options.keys);
}
template <typename Line>
void fields(Line& line, AttentionOptions& options) {
    line(options.factor, options.causal, options.queries, options.keys);
}
template <typename Line>
void fields(Line& line, HeadSumOptions& options) {
    line(options.transpose, options.factor);
}
template <typename Line>
void fields(Line& line, VocabularyShard& shard) {
    line(shard.first, shard.whole);
}
template <typename Line>
void fields(Line& line, RandomPart& part) {
    line(part.offset, part.pitch);
}
template <typename Line>
void fields(Line& line, RandomStream& stream) {
    line(stream.seed, stream.purpose);
}
template <typename Line>
void fields(Line& line, SgdOptions& options) {
    line(options.learning_rate, options.momentum, options.weight_decay);
}
template <typename Line>
void fields(Line& line, AdamWOptions& options) {
    line(options.learning_rate, options.beta1, options.beta2, options.epsilon,
         options.weight_decay);
}
template <typename Line>
void fields(Line& line, Heads& heads) {
    line(heads.tensor, heads.heads, heads.width, heads.first);
}
template <typename Line>
void fields(Line& line, AttentionHeads& heads) {
    line(heads.queries, heads.keys, heads.values);
}
template <typename Line>
void fields(Line& line, OnlineAttention& state) {
    line(state.y, state.maximum, state.sum);
}
template <typename Line>
void fields(Line& line, AttentionBackward& backward) {
    line(backward.dy, backward.log_sum_exp, backward.dy_y);
}
template <typename Line>
void fields(Line& line, Normalized& normalized) {
    line(normalized.y, normalized.mean, normalized.rstd);
}
template <typename Line>
void fields(Line& line, CommOperation& operation) {
    line(operation.verb, operation.reduction, operation.peer, operation.output,
         operation.input, operation.at);
}
template <typename Line>
void fields(Line& line, SplitRequest& request) {
    line(request.color, request.key, request.name, request.members, request.same_on_all);
}

}  // namespace lockstep::lessons
