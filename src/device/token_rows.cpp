#include "src/device/token_rows.hpp"

#include <algorithm>

namespace lockstep {

namespace {

/// Tokens first, first + step, …
struct Run {
    std::int64_t first, step, count;
};

/// Calls f(run) for each run of tokens in rows [0, rows). A rank has at most two runs.
template <typename F>
void each_run(const TokenRows& tokens, std::int64_t rows, F&& f) {
    if (tokens.order == TokenOrder::contiguous) return f(Run{tokens[0], 1, rows});
    const bool striped = tokens.order == TokenOrder::striped;
    const std::int64_t longest = striped ? tokens.share : tokens.share / 2;
    for (std::int64_t row = 0; row < rows;) {
        const std::int64_t into = (tokens.first + row) % longest;
        const std::int64_t count = std::min(longest - into, rows - row);
        f(Run{tokens[row], striped ? tokens.ranks : 1, count});
        row += count;
    }
}

/// 0 + 1 + … + (count - 1).
std::int64_t triangle(std::int64_t count) {
    return count * (count - 1) / 2;
}

/// Returns the sum of i + from over 0 <= i < count, each clamped to [0, most].
std::int64_t clamped_sum(std::int64_t from, std::int64_t count, std::int64_t most) {
    const std::int64_t begin = std::clamp<std::int64_t>(-from, 0, count);
    const std::int64_t full = std::clamp<std::int64_t>(most - from, begin, count);
    return (full - begin) * from + triangle(full) - triangle(begin) +
           (count - full) * most;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
    return a / b - (a % b < 0 ? 1 : 0);
}

/// The query of token t sees floor((t - keys.first) / keys.step) + 1 keys of the run,
/// clamped to [0, keys.count].
std::int64_t pairs_of(const Run& queries, const Run& keys) {
    if (queries.step == keys.step)
        return clamped_sum(floor_divide(queries.first - keys.first, keys.step) + 1,
                           queries.count, keys.count);
    std::int64_t pairs = 0;
    for (std::int64_t i = 0; i < queries.count; ++i) {
        const std::int64_t token = queries.first + i * queries.step;
        pairs += std::clamp<std::int64_t>(floor_divide(token - keys.first, keys.step) + 1,
                                          0, keys.count);
    }
    return pairs;
}

}  // namespace

std::int64_t causal_pairs(const TokenRows& queries, std::int64_t query_rows,
                          const TokenRows& keys, std::int64_t key_rows) {
    std::int64_t pairs = 0;
    each_run(queries, query_rows, [&](const Run& query_run) {
        each_run(keys, key_rows,
                 [&](const Run& key_run) { pairs += pairs_of(query_run, key_run); });
    });
    return pairs;
}

}  // namespace lockstep
