// Tests what the assignment `decode` says of plans: a right one has no mistake, and the
// reference's are as short as those of the library's batcher.

#include <algorithm>

#include "lessons/assignments/decode/grading/replay.hpp"
#include "lessons/assignments/decode/handout/decode.hpp"
#include "src/core/philox.hpp"
#include "src/inference/batcher.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

using namespace lessons::decode;
using Catch::Matchers::ContainsSubstring;

/// Requests at random, of which pages and places are short.
Case some_requests(std::uint64_t seed) {
    const RandomStream stream(seed, "requests");
    Case drawn{.rules = {10, 4, 9, 3}, .passes = 200};
    auto draw = [&, next = std::uint64_t{0}](std::uint64_t most) mutable {
        return static_cast<std::int64_t>(1 + stream.bits(next++) % most);
    };
    std::int64_t pass = 0;
    for (int i = 0; i < 9; ++i) {
        drawn.prompts.push_back({draw(13), draw(14), pass});
        pass += draw(3) - 1;
    }
    return drawn;
}

std::vector<Planned> plan_of(const Case& drawn) {
    const std::unique_ptr<Batching> batcher = make_batcher(drawn.rules);
    std::vector<Planned> plan;
    std::size_t added = 0;
    for (std::int64_t pass = 0; pass < drawn.passes; ++pass) {
        for (; added < drawn.prompts.size() && drawn.prompts[added].arrival <= pass;
             ++added)
            batcher->add({static_cast<std::int64_t>(added), drawn.prompts[added].prompt,
                          drawn.prompts[added].output});
        for (const Share& share : batcher->next())
            plan.push_back({pass, share.request, share.tokens.first, share.tokens.count,
                            share.tokens.pages});
    }
    return plan;
}

/// The library's own batcher with the same requests.
struct LibraryRun {
    std::int64_t passes = 0;
    int preemptions = 0;
};

LibraryRun run_library(const Case& drawn) {
    const auto& [rows, sequences, pages, page_rows] = drawn.rules;
    PagePool pool(pages, page_rows, /*reuse=*/false);
    Batcher batcher(pool, {.most_sequences = sequences, .most_rows = rows});
    LibraryRun run;
    std::size_t added = 0;
    for (std::int64_t pass = 0; added < drawn.prompts.size() || !batcher.idle(); ++pass) {
        for (; added < drawn.prompts.size() && drawn.prompts[added].arrival <= pass;
             ++added) {
            lockstep::Request request;
            request.id = static_cast<std::int64_t>(added);
            request.prompt.resize(static_cast<std::size_t>(drawn.prompts[added].prompt));
            request.output = drawn.prompts[added].output;
            batcher.add(std::move(request));
        }
        if (batcher.next().tokens.rows() > 0) run.passes = pass + 1;
        batcher.take(std::vector<std::int32_t>(batcher.wanted().size()));
    }
    for (const Answer& answer : batcher.answers())
        run.preemptions += answer.preemptions;
    return run;
}

/// Two requests that are under way together: three passes.
Case two_requests() {
    return {.rules = {6, 2, 4, 2}, .prompts = {{3, 2}, {2, 3}}, .passes = 9};
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

TEST_CASE("The reference's plans are right, and as short as the library's",
          "[grader][decode]") {
    int preemptions = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        CAPTURE(seed);
        const Case drawn = some_requests(seed);
        const Verdict verdict = replayed(drawn, plan_of(drawn));
        CHECK(verdict.tokens.empty());
        CHECK(verdict.limits.empty());
        CHECK(verdict.order.empty());
        const LibraryRun library = run_library(drawn);
        CHECK(verdict.passes == library.passes);
        CHECK(verdict.sent_back == library.preemptions);
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
    const auto read = [](const std::vector<std::int32_t>& left) {
        return read_plan(HostTensor::of<std::int32_t>({std::ssize(left)}, left));
    };
    CHECK(read({7})->shares.empty());
    CHECK(read({7})->free == 7);
    CHECK(read({7, 0, 1, 0, 2, 1, 5})->shares.front().pages ==
          std::vector<std::int32_t>{5});
    CHECK(!read({}));
    CHECK(!read({7, 0, 1, 0, 2}));
    CHECK(!read({7, 0, 1, 0, 2, 2, 5}));
    CHECK(!read({7, 0, 1, 0, 2, -1}));
    CHECK(!read({7, -1, 1, 0, 2, 0}));
    CHECK(!read({7, 1, 1, 0, 2, 0, 0, 1, 0, 2, 0}));
    CHECK(!read_plan(HostTensor({3}, DType::f64)));
    CHECK(!read_plan(HostTensor({5, 1}, DType::i32)));
}

}  // namespace lockstep::test
