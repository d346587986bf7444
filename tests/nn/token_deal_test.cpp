#include "src/nn/token_deal.hpp"

#include <vector>

#include "tests/nn/fixture.hpp"

namespace lockstep::nn_test {

namespace {

constexpr TokenOrder kOrders[] = {TokenOrder::contiguous, TokenOrder::striped,
                                  TokenOrder::zigzag};

/// Tokens 0, 1, … of two sequences. The second sequence's tokens are larger by 100.
HostTensor sequence(std::int64_t tokens) {
    HostTensor ids({tokens, 2}, DType::i32);
    for (std::int64_t i = 0; i < ids.elements(); ++i) {
        const std::int64_t id = i / 2 + 100 * (i % 2);
        ids.set(i, static_cast<double>(id));
    }
    return ids;
}

/// Returns a rank's tokens of the first sequence.
std::vector<std::int64_t> dealt(std::int64_t tokens, const TokenDeal& deal) {
    const HostTensor rows = dealt_rows(sequence(tokens), deal);
    std::vector<std::int64_t> result;
    for (std::int64_t row = 0; row < rows.shape()[0]; ++row) {
        result.push_back(static_cast<std::int64_t>(rows.at(2 * row)));
        CHECK(rows.at(2 * row + 1) == rows.at(2 * row) + 100);
    }
    return result;
}

using Tokens = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("Contiguous order gives each rank one stretch", "[nn]") {
    CHECK(dealt(12, {TokenOrder::contiguous, 3, 0}) == Tokens{0, 1, 2, 3});
    CHECK(dealt(12, {TokenOrder::contiguous, 3, 1}) == Tokens{4, 5, 6, 7});
    CHECK(dealt(12, {TokenOrder::contiguous, 3, 2}) == Tokens{8, 9, 10, 11});
}

TEST_CASE("Striped order gives the ranks one token each in turn", "[nn]") {
    CHECK(dealt(12, {TokenOrder::striped, 3, 0}) == Tokens{0, 3, 6, 9});
    CHECK(dealt(12, {TokenOrder::striped, 3, 1}) == Tokens{1, 4, 7, 10});
    CHECK(dealt(12, {TokenOrder::striped, 3, 2}) == Tokens{2, 5, 8, 11});
}

TEST_CASE("Zigzag order gives each rank an early and a late stretch", "[nn]") {
    CHECK(dealt(12, {TokenOrder::zigzag, 3, 0}) == Tokens{0, 1, 10, 11});
    CHECK(dealt(12, {TokenOrder::zigzag, 3, 1}) == Tokens{2, 3, 8, 9});
    CHECK(dealt(12, {TokenOrder::zigzag, 3, 2}) == Tokens{4, 5, 6, 7});
}

TEST_CASE("One rank has the sequence unchanged", "[nn]") {
    for (const TokenOrder order : kOrders) {
        CAPTURE(name_of(order));
        CHECK(dealt_rows(sequence(6), {order, 1, 0}) == sequence(6));
    }
    CHECK(dealt_rows(sequence(5), TokenDeal{}) == sequence(5));
}

TEST_CASE("All ranks' rows together are the whole sequence", "[nn]") {
    for (const int ranks : {1, 2, 3, 4, 8})
        for (const TokenOrder order : kOrders) {
            CAPTURE(ranks, name_of(order));
            const HostTensor x = normal_values({48, 2, 3}, "x");
            std::vector<HostTensor> of_ranks;
            of_ranks.reserve(static_cast<std::size_t>(ranks));
            for (int rank = 0; rank < ranks; ++rank)
                of_ranks.push_back(dealt_rows(x, {order, ranks, rank}));
            CHECK(of_ranks.front().shape() == Shape{48 / ranks, 2, 3});
            CHECK(whole_sequence(of_ranks, order) == x);
        }
}

TEST_CASE("The rows of all ranks are their tokens, rank after rank", "[nn]") {
    for (const int ranks : {1, 3, 4})
        for (const TokenOrder order : kOrders) {
            CAPTURE(ranks, name_of(order));
            const std::int64_t share = TokenDeal{order, ranks, 0}.share_of(24, "test");
            CHECK(share == 24 / ranks);
            const TokenRows all = TokenDeal{order, ranks, 0}.all(share);
            for (int rank = 0; rank < ranks; ++rank) {
                const TokenDeal deal{order, ranks, rank};
                const Tokens tokens = dealt(24, deal);
                const TokenRows own = deal.own(share);
                for (std::int64_t row = 0; row < share; ++row) {
                    CHECK(own[row] == tokens[static_cast<std::size_t>(row)]);
                    CHECK(all[rank * share + row] == own[row]);
                }
            }
        }
}

TEST_CASE("Orders are known by their names", "[nn]") {
    for (const TokenOrder order : kOrders)
        CHECK(token_order(name_of(order)) == order);
    CHECK_THAT(refusal([] { token_order("Zigzag"); }),
               says("order of tokens 'Zigzag'; contiguous, striped or zigzag"));
}

}  // namespace lockstep::nn_test
