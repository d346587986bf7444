// Tests what the assignment `decode` says of wrong tokens and of plans: usual mistakes
// are told apart, and a right plan has none.

#include <algorithm>

#include "lessons/assignments/decode/grading/causes.hpp"
#include "lessons/assignments/decode/grading/replay.hpp"
#include "lessons/assignments/decode/handout/decode.hpp"
#include "src/core/philox.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

using namespace lessons::decode;
using Catch::Matchers::ContainsSubstring;

GenerationCase some_case(int ranks, std::int64_t seed) {
    return {
        {29, 40, 2, 16, 8, 4, 4, 24}, {{5, 7}, {1, 2}, {9, 6}, {3, 9}}, 4, ranks, seed};
}

/// Requests at random, of which pages and places are short.
BatchingCase some_requests(std::uint64_t seed) {
    const RandomStream stream(seed, "requests");
    BatchingCase of{{10, 4, 9, 3}, {}, 200};
    auto draw = [&, next = std::uint64_t{0}](std::uint64_t most) mutable {
        return static_cast<std::int64_t>(1 + stream.bits(next++) % most);
    };
    std::int64_t pass = 0;
    for (int i = 0; i < 9; ++i) {
        of.requests.push_back({pass, draw(13), draw(14)});
        pass += draw(3) - 1;
    }
    return of;
}

std::vector<Planned> plan_of(const BatchingCase& of) {
    const std::unique_ptr<Batching> batcher = make_batcher(of.rules);
    std::vector<Planned> plan;
    std::size_t added = 0;
    for (std::int64_t pass = 0; pass < of.passes; ++pass) {
        for (; added < of.requests.size() && of.requests[added].pass <= pass; ++added)
            batcher->add({static_cast<std::int64_t>(added), of.requests[added].prompt,
                          of.requests[added].output});
        for (const Share& share : batcher->next())
            plan.push_back({pass, share.request, share.tokens.first, share.tokens.count,
                            share.tokens.pages});
    }
    return plan;
}

/// Two requests that are under way together: three passes.
BatchingCase two_requests() {
    return {{6, 2, 4, 2}, {{0, 3, 2}, {0, 2, 3}}, 9};
}
std::vector<Planned> plan_of_two() {
    return {{0, 0, 0, 3, {0, 1}},
            {0, 1, 0, 2, {2}},
            {1, 0, 3, 1, {0, 1}},
            {1, 1, 2, 1, {2, 3}},
            {2, 1, 3, 1, {2, 3}}};
}

/// The verdict, after one change to the plan.
template <typename Change>
Verdict changed(Change change) {
    std::vector<Planned> plan = plan_of_two();
    change(plan);
    return replayed(two_requests(), plan);
}

}  // namespace

TEST_CASE("Usual mistakes of decoding give tokens of their own", "[grader][decode]") {
    const std::int64_t seed = GENERATE(range(1, 7));
    const int ranks = GENERATE(1, 2);
    const GenerationCase of = some_case(ranks, seed);
    const HostGpt gpt = host_gpt(of);
    std::vector<TokensOfRanks> seen{generated(gpt, of)};
    const Mistake last = ranks == 1 ? Mistake::other_keys : Mistake::keys_of_first_rank;
    for (int mistake = 1; mistake <= static_cast<int>(last); ++mistake) {
        CAPTURE(seed, ranks, mistake);
        seen.push_back(generated(gpt, of, static_cast<Mistake>(mistake)));
        CHECK(std::ranges::find(seen, seen.back()) == seen.end() - 1);
    }
}

TEST_CASE("Where two mistakes leave the same tokens, other weights are taken",
          "[grader][decode]") {
    int others = 0;
    for (std::int64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        // One token of few words: mistakes often agree.
        const GenerationCase of{{7, 40, 2, 16, 4, 4, 4, 24}, {{5, 1}}, 4, 1, seed};
        const GenerationCase taken = with_telling_weights(of);
        CHECK(tells_mistakes_apart(taken));
        CHECK((taken.seed == seed) == tells_mistakes_apart(of));
        CHECK(with_telling_weights(of).seed == taken.seed);
        others += taken.seed != seed;
    }
    CHECK(others > 5);
}

TEST_CASE("Ranks together generate what one device does", "[grader][decode]") {
    const HostGpt gpt = host_gpt(some_case(1, 3));
    const auto alone = generated(gpt, some_case(1, 3));
    for (const std::vector<Tokens>& of_rank : generated(gpt, some_case(4, 3)))
        CHECK(of_rank == alone.front());
}

TEST_CASE("The reference's plans are right, and as short as the library's",
          "[grader][decode]") {
    int preemptions = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        CAPTURE(seed);
        const BatchingCase of = some_requests(seed);
        const Verdict verdict = replayed(of, plan_of(of));
        CHECK(verdict.tokens.empty());
        CHECK(verdict.limits.empty());
        CHECK(verdict.order.empty());
        const LibraryRun library = run_library(of);
        CHECK(verdict.passes == library.passes);
        preemptions += library.preemptions;
    }
    CHECK(preemptions > 100);
}

TEST_CASE("A plan's first mistake is named", "[grader][decode]") {
    CHECK(changed([](auto&) {}).tokens.empty());
    CHECK_THAT(changed([](auto& plan) {
                   plan[3].pages = {1, 3};
               }).tokens,
               ContainsSubstring("pass 1: request 1 looks for the keys of its token 0 in "
                                 "row 0 of page 1, where token 2 of request 0 was stored "
                                 "in pass 0"));
    CHECK_THAT(changed([](auto& plan) {
                   plan[3].pages = {3, 2};
               }).tokens,
               ContainsSubstring("row 0 of page 3, where nothing has been stored"));
    CHECK_THAT(changed([](auto& plan) { plan.pop_back(); }).tokens,
               ContainsSubstring("request 1 has 2 of its 3 tokens after 9 passes, and "
                                 "nothing has been planned from pass 2 on"));
    CHECK_THAT(changed([](auto& plan) { plan[4].pages = {2}; }).tokens,
               ContainsSubstring("request 1 has 4 tokens by then, on 1 pages of 2"));
    CHECK_THAT(changed([](auto& plan) { plan[4].pages[0] = -1; }).tokens,
               ContainsSubstring("request 1 has page -1, and there are 4"));
    CHECK_THAT(changed([](auto& plan) { plan[4].request = 7; }).tokens,
               ContainsSubstring("there is no request 7"));
    CHECK_THAT(changed([](auto& plan) { plan[4].request = 0; }).tokens,
               ContainsSubstring("request 0 has rows, and has all of its tokens"));
    CHECK_THAT(changed([](auto& plan) { plan[4].count = 2; }).tokens,
               ContainsSubstring("tokens 3 to 4 of request 1, which has 4 tokens"));
    CHECK_THAT(changed([](auto& plan) { plan[4].first = 2; }).tokens,
               ContainsSubstring("token 2 of request 1, of whose tokens 3 have been"));
    CHECK_THAT(changed([](auto& plan) { plan[1].pass = 1; }).tokens,
               ContainsSubstring("pass 1: request 1 is there twice"));
    CHECK_THAT(changed([](auto& plan) {
                   plan[0].count = 2;
                   plan[2].first = 2;
                   plan[2].count = 1;
               }).order,
               ContainsSubstring("pass 0: request 0 still lacks rows of its prompt, and "
                                 "request 1, which has come after it, has some"));
    CHECK_THAT(changed([](auto& plan) { plan[3].pass = plan[4].pass++; }).order,
               ContainsSubstring("pass 1: request 1 lacks one row to its next token"));
}

TEST_CASE("What is no plan is refused", "[grader][decode]") {
    const auto read = [](const std::vector<std::int32_t>& log) {
        return read_log(HostTensor::of<std::int32_t>({std::ssize(log)}, log));
    };
    CHECK(read({})->empty());
    CHECK(read({0, 1, 0, 2, 1, 5})->front().pages == std::vector<std::int32_t>{5});
    CHECK(!read({0, 1, 0, 2}));
    CHECK(!read({0, 1, 0, 2, 2, 5}));
    CHECK(!read({0, 1, 0, 2, -1}));
    CHECK(!read({-1, 1, 0, 2, 0}));
    CHECK(!read({1, 1, 0, 2, 0, 0, 1, 0, 2, 0}));
    CHECK(!read_log(HostTensor({3}, DType::f64)));
    CHECK(!read_log(HostTensor({5, 1}, DType::i32)));
}

}  // namespace lockstep::test
