#include <algorithm>
#include <map>
#include <memory>

#include "src/inference/batcher.hpp"
#include "tests/catch.hpp"
#include "tests/inference/serving.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

std::int64_t below(std::int64_t bound, std::uint64_t& at) {
    return static_cast<std::int64_t>(RandomStream(5, "batcher").uniform(at++) *
                                     static_cast<double>(bound));
}

/// Runs one pass of the batcher. The new token at position p is p modulo 7.
Pass take_pass(Batcher& batcher) {
    Pass pass = batcher.next();
    std::vector<std::int32_t> tokens;
    for (const Wanted& row : batcher.wanted())
        tokens.push_back(static_cast<std::int32_t>(row.position % 7));
    batcher.take(tokens);
    return pass;
}

}  // namespace

TEST_CASE("All requests are answered, with any rules and number of pages",
          "[inference]") {
    std::uint64_t at = 0;
    std::int64_t preemptions = 0, reused = 0;
    for (int round = 0; round < 400; ++round) {
        const std::int64_t pages = 6 + below(20, at), rows = 1 + below(5, at);
        PagePool pool(pages, rows, below(2, at) == 0);
        const BatchRules rules{.most_sequences = 1 + below(6, at),
                               .most_rows = 1 + below(12, at),
                               .pieces = below(2, at) == 0,
                               .continuous = below(2, at) == 0};
        Batcher batcher(pool, rules);
        std::map<std::int64_t, std::int64_t> asked;
        for (std::int64_t id = below(8, at); id >= 0; --id) {
            const std::int64_t most = pages * rows;
            Request request{id, 0, {}, 1 + below(most / 2, at), {}};
            request.prompt.resize(static_cast<std::size_t>(1 + below(most / 2, at)));
            for (std::int32_t& token : request.prompt)
                token = static_cast<std::int32_t>(below(2, at));
            asked[id] = request.output;
            batcher.add(request);
        }
        for (int passes = 0; !batcher.idle(); ++passes) {
            REQUIRE(passes < 20'000);
            const Pass pass = take_pass(batcher);
            REQUIRE(!pass.ids.empty());
            REQUIRE(pass.tokens.rows() == static_cast<std::int64_t>(pass.ids.size()));
            if (rules.pieces) REQUIRE(pass.tokens.rows() <= rules.most_rows);
            REQUIRE(static_cast<std::int64_t>(pass.tokens.sequences.size()) <=
                    rules.most_sequences);
        }
        CHECK(pool.free() == pages);
        for (const Answer& answer : batcher.answers()) {
            CHECK(static_cast<std::int64_t>(answer.tokens.size()) == asked.at(answer.id));
            asked.erase(answer.id);
            preemptions += answer.preemptions;
            reused += answer.reused;
        }
        CHECK(asked.empty());
    }
    CHECK(preemptions > 100);
    CHECK(reused > 100);
}

TEST_CASE("A dropped request returns its pages and its tokens", "[inference]") {
    PagePool pool(8, 4);
    Batcher batcher(pool, {.most_sequences = 2});
    for (std::int64_t id = 0; id < 3; ++id)
        batcher.add(random_request(id, 4, 5, 29));
    take_pass(batcher);
    take_pass(batcher);
    CHECK(batcher.running() == 2);
    CHECK(batcher.waiting() == 1);
    CHECK(batcher.drop(1));
    CHECK(batcher.drop(2));
    CHECK(!batcher.drop(2));
    const auto dropped = batcher.answers();
    REQUIRE(dropped.size() == 2);
    CHECK(dropped[0].tokens.size() == 2);
    CHECK(dropped[1].tokens.empty());
    CHECK(pool.free() == 8 - 2);
    // The id of a finished request may be used again.
    batcher.add(random_request(1, 4, 1, 29));
    while (!batcher.idle())
        take_pass(batcher);
    CHECK(batcher.answers().size() == 2);
    CHECK(pool.free() == 8);
}

TEST_CASE("A batcher refuses calls in the wrong order", "[inference][errors]") {
    PagePool pool(4, 4);
    Batcher batcher(pool, {});
    CHECK_THAT(refusal([&] { batcher.take({}); }),
               says("take() got 0 tokens, but no pass is under way"));
    CHECK(batcher.next().ids.empty());
    batcher.take({});
    batcher.add(random_request(0, 2, 2, 29));
    CHECK_THAT(refusal([&] { batcher.add(random_request(0, 2, 2, 29)); }),
               says("two requests under way have id 0"));
    batcher.next();
    CHECK_THAT(refusal([&] { batcher.next(); }),
               says("next() was called before take() for the last pass"));
    CHECK_THAT(refusal([&] { batcher.drop(0); }),
               says("request 0 is dropped while a pass is under way"));
    CHECK_THAT(refusal([&] {
                   batcher.take({1, 2});
               }),
               says("take() got 2 tokens, but the pass wants 1"));
    batcher.take({1});
    const auto said = [&](const Request& request) {
        return refusal([&] { batcher.add(request); });
    };
    CHECK_THAT(said({1, 0, {}, 1, {}}), says("request 1 has a prompt of 0 tokens"));
    CHECK_THAT(said({1, 0, {1}, 0, {}}), says("and asks for 0"));
    CHECK_THAT(said({1, 0, {1, 2}, INT64_MAX, {}}), says("the cache has room for 16"));
    CHECK_THAT(said({1, 0, {1}, 1, {.temperature = -1}}), says("a temperature of -1"));
    CHECK_THAT(refusal([&] { Batcher(pool, {.most_rows = 0}); }),
               says("passes of up to 64 sequences and 0 rows"));
}

TEST_CASE("A static batch has all waiting requests, in several passes", "[inference]") {
    PagePool pool(100, 4);
    Batcher batcher(pool, {.most_sequences = 3, .most_rows = 8, .continuous = false});
    for (std::int64_t id = 0; id < 5; ++id)
        batcher.add(random_request(id, 6, 2, 29));
    const auto pass = [&] {
        const Pass next = batcher.next();
        batcher.take(std::vector<std::int32_t>(next.wanted.size(), 1));
        return next.requests;
    };
    using Requests = std::vector<std::int64_t>;
    CHECK(pass() == Requests{0, 1});  // six rows of one request and two of the other
    CHECK(pass() == Requests{0, 1, 2});
    CHECK(pass() == Requests{1, 2});
    batcher.add(random_request(9, 1, 1, 29));
    CHECK(pass() == Requests{2});
    CHECK(pass() == Requests{3, 4});
    while (!batcher.idle())
        pass();
    CHECK(batcher.answers().size() == 6);
}

}  // namespace lockstep::test
