#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "src/device/token_rows.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

const TokenOrder kOrders[] = {TokenOrder::contiguous, TokenOrder::striped,
                              TokenOrder::zigzag};

std::string text_of(const TokenRows& tokens) {
    return fmt::format("{}, {} ranks of {}, from row {}", name_of(tokens.order),
                       tokens.ranks, tokens.share, tokens.first);
}

/// Returns sequences sharded over a few ranks, in every order. Ranks have an even number
/// of tokens.
std::vector<TokenRows> dealt_sequences(std::int64_t most_ranks, std::int64_t most_share) {
    std::vector<TokenRows> sequences;
    for (const TokenOrder order : kOrders)
        for (std::int64_t ranks = 1; ranks <= most_ranks; ++ranks)
            for (std::int64_t share = 2; share <= most_share; share += 2)
                sequences.push_back({order, ranks, share, 0});
    return sequences;
}

/// Counts the pairs of a query and a key that it sees, one pair at a time.
std::int64_t counted_pairs(const TokenRows& queries, std::int64_t query_rows,
                           const TokenRows& keys, std::int64_t key_rows) {
    std::int64_t pairs = 0;
    for (std::int64_t i = 0; i < query_rows; ++i)
        for (std::int64_t j = 0; j < key_rows; ++j)
            pairs += keys[j] <= queries[i] ? 1 : 0;
    return pairs;
}

/// Returns the pairs of one rank's queries with all ranks' keys.
std::int64_t pairs_of_rank(const TokenRows& tokens, std::int64_t rank) {
    return causal_pairs(tokens.of_rank(rank), tokens.share, tokens,
                        tokens.ranks * tokens.share);
}

}  // namespace

TEST_CASE("Without sharding, row i is token i", "[device][tokens]") {
    const TokenRows tokens;
    for (const std::int64_t row : {0, 1, 7, 1000000})
        REQUIRE(tokens[row] == row);
    REQUIRE(TokenRows{TokenOrder::contiguous, 1, 0, 40}[3] == 43);
}

TEST_CASE("In every order each token is on one rank, and a rank's tokens ascend",
          "[device][tokens]") {
    for (const TokenRows& tokens : dealt_sequences(5, 8)) {
        CAPTURE(text_of(tokens));
        const std::int64_t all = tokens.ranks * tokens.share;
        std::vector<std::int64_t> dealt;
        for (std::int64_t rank = 0; rank < tokens.ranks; ++rank) {
            const TokenRows own = tokens.of_rank(rank);
            for (std::int64_t row = 0; row < tokens.share; ++row) {
                REQUIRE(own[row] == tokens[rank * tokens.share + row]);
                if (row > 0) REQUIRE(own[row] > own[row - 1]);
                dealt.push_back(own[row]);
            }
        }
        std::sort(dealt.begin(), dealt.end());
        for (std::int64_t token = 0; token < all; ++token)
            REQUIRE(dealt[static_cast<std::size_t>(token)] == token);
    }
}

TEST_CASE("Ranks have the tokens that the papers give them", "[device][tokens]") {
    for (const TokenRows& tokens : dealt_sequences(5, 8)) {
        CAPTURE(text_of(tokens));
        const std::int64_t ranks = tokens.ranks, share = tokens.share;
        for (std::int64_t rank = 0; rank < ranks; ++rank)
            for (std::int64_t row = 0; row < share; ++row) {
                const std::int64_t token = tokens.of_rank(rank)[row];
                // Of 2 N stretches, rank i has stretches i and 2 N - 1 - i (Llama 3,
                // section 3.3.2).
                const std::int64_t stretch = token / (share / 2);
                if (tokens.order == TokenOrder::zigzag)
                    REQUIRE(stretch == (row < share / 2 ? rank : 2 * ranks - 1 - rank));
                else if (tokens.order == TokenOrder::striped)
                    REQUIRE(token % ranks == rank);
                else
                    REQUIRE(token / share == rank);
            }
    }
    // The written-out order for two ranks with four tokens each.
    const TokenRows zigzag{TokenOrder::zigzag, 2, 4, 0};
    const std::int64_t tokens[] = {0, 1, 6, 7, 2, 3, 4, 5};
    for (std::int64_t row = 0; row < 8; ++row)
        REQUIRE(zigzag[row] == tokens[row]);
}

TEST_CASE("The number of causal pairs equals a count", "[device][tokens]") {
    const std::vector<TokenRows> sequences = dealt_sequences(3, 6);
    std::int64_t checked = 0;
    for (TokenRows queries : sequences)
        for (TokenRows keys : sequences)
            for (queries.first = 0; queries.first < 7; queries.first += 2)
                for (keys.first = 0; keys.first < 8; keys.first += 3) {
                    const std::int64_t m = queries.ranks * queries.share - queries.first;
                    const std::int64_t n = keys.ranks * keys.share - keys.first;
                    for (const std::int64_t rows : {m, m - 1, m / 2})
                        for (const std::int64_t columns : {n, n - 3, n / 3}) {
                            if (rows < 0 || columns < 0) continue;
                            const std::int64_t pairs =
                                causal_pairs(queries, rows, keys, columns);
                            if (pairs != counted_pairs(queries, rows, keys, columns))
                                FAIL(fmt::format(
                                    "{} pairs of {} queries ({}) and {} "
                                    "keys ({}); {} were counted",
                                    pairs, rows, text_of(queries), columns, text_of(keys),
                                    counted_pairs(queries, rows, keys, columns)));
                            ++checked;
                        }
                }
    REQUIRE(checked > 20000);
}

TEST_CASE("A striped sequence of odd shares also has all its pairs", "[device][tokens]") {
    for (std::int64_t ranks = 1; ranks <= 4; ++ranks)
        for (std::int64_t share = 1; share <= 7; share += 2) {
            const TokenRows tokens{TokenOrder::striped, ranks, share, 0};
            const std::int64_t all = ranks * share;
            CAPTURE(text_of(tokens));
            REQUIRE(causal_pairs(tokens, all, tokens, all) == all * (all + 1) / 2);
            for (std::int64_t rank = 0; rank < ranks; ++rank)
                REQUIRE(pairs_of_rank(tokens, rank) ==
                        counted_pairs(tokens.of_rank(rank), share, tokens, all));
        }
}

TEST_CASE("All ranks' causal pairs together are the sequence's, in every order",
          "[device][tokens]") {
    for (const TokenRows& tokens : dealt_sequences(6, 12)) {
        CAPTURE(text_of(tokens));
        const std::int64_t all = tokens.ranks * tokens.share;
        std::int64_t pairs = 0;
        for (std::int64_t rank = 0; rank < tokens.ranks; ++rank)
            pairs += pairs_of_rank(tokens, rank);
        REQUIRE(pairs == all * (all + 1) / 2);
        REQUIRE(causal_pairs(tokens, all, tokens, all) == pairs);
    }
}

TEST_CASE("Zigzag order balances the work, striped order nearly, contiguous order not",
          "[device][tokens]") {
    for (const TokenRows& tokens : dealt_sequences(6, 12)) {
        CAPTURE(text_of(tokens));
        const std::int64_t ranks = tokens.ranks, share = tokens.share;
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
            const std::int64_t pairs = pairs_of_rank(tokens, rank);
            CAPTURE(rank, pairs);
            // In contiguous order a rank sees all earlier tokens, and half its own.
            if (tokens.order == TokenOrder::contiguous)
                REQUIRE(pairs == rank * share * share + share * (share + 1) / 2);
            // In striped order, the token before each token is in the same row of the
            // previous rank.
            if (tokens.order == TokenOrder::striped)
                REQUIRE(pairs == pairs_of_rank(tokens, 0) + share * rank);
            if (tokens.order == TokenOrder::zigzag)
                REQUIRE(2 * pairs == share * (ranks * share + 1));
        }
    }
}

TEST_CASE("Causal pairs of long sequences are counted fast, without overflow",
          "[device][tokens]") {
    const std::int64_t share = 1 << 20, ranks = 16;
    for (const TokenOrder order : kOrders) {
        const TokenRows tokens{order, ranks, share, 0};
        const std::int64_t all = ranks * share;
        CAPTURE(text_of(tokens));
        REQUIRE(causal_pairs(tokens, all, tokens, all) == all * (all + 1) / 2);
    }
}

}  // namespace lockstep::test
