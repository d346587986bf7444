// Tests the data of the book's laboratory of attention.

#include <set>

#include "lessons/book/laboratory_runs.hpp"
#include "src/device/operations/attention.hpp"
#include "src/parallel/context_traffic.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons;

namespace {

const Json& data() {
    static const Json runs = attention_runs();
    return runs;
}

constexpr std::int64_t kTokens = 32, kHeads = 8, kWidth = 64;

std::int64_t pairs_of_mask(const Json& run) {
    return run.at("mask").is("causal") ? kTokens * (kTokens + 1) / 2 : kTokens * kTokens;
}

std::int64_t number(const Json& block, std::size_t place) {
    return block.elements()[place].get<std::int64_t>();
}

}  // namespace

TEST_CASE("blocks have all pairs that the mask lets through") {
    CHECK(data().at("runs").size() == 108);
    for (const Json& run : data().at("runs").elements()) {
        const bool shares_heads = run.at("method").is("ulysses");
        std::int64_t pairs = 0;
        for (const Json& rank : run.at("ranks").elements())
            for (const Json& block : rank.at("blocks").elements()) {
                if (shares_heads) CHECK(number(block, 1) == pairs_of_mask(run));
                pairs += number(block, 1);
            }
        if (!shares_heads) CHECK(pairs == pairs_of_mask(run));
    }
}

TEST_CASE("a block takes its pairs' time, and begins after the block before it ends") {
    for (const Json& run : data().at("runs").elements()) {
        const auto devices = run.at("devices").get<std::int64_t>();
        const std::int64_t heads =
            run.at("method").is("ulysses") ? kHeads / devices : kHeads;
        const std::int64_t of_pair =
            heads * (4 * kWidth + ops::Attend::kFlopsOfPair);  // at 1e12 flop/s
        for (const Json& rank : run.at("ranks").elements()) {
            std::int64_t end = 0;
            for (const Json& block : rank.at("blocks").elements()) {
                CHECK((number(block, 1) == 0) == block.elements()[2].is_null());
                if (number(block, 1) == 0) continue;
                CHECK(number(block, 2) >= end);
                end = number(block, 3);
                CHECK(end - number(block, 2) == number(block, 1) * of_pair);
            }
            CHECK(end <= run.at("time").get<std::int64_t>());
        }
    }
}

TEST_CASE("a device of the laboratory sends as many bytes as the formula says") {
    for (const Json& run : data().at("runs").elements()) {
        const int devices = run.at("devices").get<int>();
        const Sent sent =
            sent_forward(context_method(run.at("method").get<std::string>()),
                         {devices, kTokens, /*batch=*/1, kHeads, kHeads, kWidth});
        for (const Json& rank : run.at("ranks").elements())
            CHECK(rank.at("bytes").get<std::int64_t>() == 4 * sent.elements);
    }
}

TEST_CASE("each token is on one device") {
    CHECK(data().at("deals").size() == 9);
    for (const Json& deal : data().at("deals").elements()) {
        std::set<std::int64_t> tokens;
        for (const Json& own : deal.at("tokens").elements())
            for (const Json& token : own.elements())
                CHECK(tokens.insert(token.get<std::int64_t>()).second);
        CHECK(tokens.size() == kTokens);
        CHECK(*tokens.rbegin() == kTokens - 1);
    }
}

TEST_CASE("zigzag order balances causal attention, contiguous order does not") {
    for (const Json& run : data().at("runs").elements()) {
        if (!run.at("mask").is("causal") || !run.at("method").is("ring-attention"))
            continue;
        std::set<std::int64_t> compute;
        for (const Json& rank : run.at("ranks").elements())
            compute.insert(rank.at("compute").get<std::int64_t>());
        const auto devices = run.at("devices").get<std::size_t>();
        CHECK(compute.size() == (run.at("order").is("zigzag") ? 1 : devices));
    }
}

TEST_CASE("the data of attention are small") {
    CHECK(data().dump().size() < 150'000);
}
