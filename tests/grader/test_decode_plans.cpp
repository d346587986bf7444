// Tests how the assignment `decode` judges plans. A right plan has no mistake, and the
// reference's plans are as short as those of the library's batcher.

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

constexpr std::int64_t kPasses = 200;

/// Random requests, with too few pages and places.
Batch some_requests(std::uint64_t seed) {
    const RandomStream stream(seed, "requests");
    Batch batch{{10, 4, 9, 3}};
    auto draw = [&, next = std::uint64_t{0}](std::uint64_t most) mutable {
        return static_cast<std::int64_t>(1 + stream.bits(next++) % most);
    };
    std::int64_t pass = 0;
    for (int i = 0; i < 9; ++i) {
        batch.requests.push_back({draw(13), draw(14), pass});
        pass += draw(3) - 1;
    }
    return batch;
}

Plan plan_of(const Batch& batch) {
    const std::unique_ptr<Batching> batcher = make_batcher(batch.rules);
    Plan plan;
    std::size_t added = 0;
    for (std::int64_t pass = 0; pass < kPasses; ++pass) {
        for (; added < batch.requests.size() && batch.requests[added].arrival <= pass;
             ++added)
            batcher->add({static_cast<std::int64_t>(added), batch.requests[added].prompt,
                          batch.requests[added].output});
        plan.push_back(batcher->next());
    }
    return plan;
}

/// Returns how often a request has started again.
int sent_back(const Batch& batch, const Plan& plan) {
    int begun = 0;
    for (const std::vector<Share>& pass : plan)
        for (const Share& share : pass)
            begun += share.tokens.first == 0 ? 1 : 0;
    return begun - static_cast<int>(batch.requests.size());
}

/// A run of the library's batcher with the same requests.
struct LibraryRun {
    std::int64_t passes = 0;
    int preemptions = 0;
};

LibraryRun run_library(const Batch& batch) {
    const auto& [rows, sequences, pages, page_rows] = batch.rules;
    PagePool pool(pages, page_rows, /*reuse=*/false);
    Batcher batcher(pool, {.most_sequences = sequences, .most_rows = rows});
    LibraryRun run;
    std::size_t added = 0;
    for (std::int64_t pass = 0; added < batch.requests.size() || !batcher.idle();
         ++pass) {
        for (; added < batch.requests.size() && batch.requests[added].arrival <= pass;
             ++added) {
            lockstep::Request request;
            request.id = static_cast<std::int64_t>(added);
            request.prompt.resize(static_cast<std::size_t>(batch.requests[added].prompt));
            request.output = batch.requests[added].output;
            batcher.add(std::move(request));
        }
        if (batcher.next().tokens.rows() > 0) run.passes = pass + 1;
        batcher.take(std::vector<std::int32_t>(batcher.wanted().size()));
    }
    for (const Answer& answer : batcher.answers())
        run.preemptions += answer.preemptions;
    return run;
}

/// Two requests that run at the same time. They need three passes.
Batch two_requests() {
    return {{6, 2, 4, 2}, {{3, 2}, {2, 3}}};
}
Plan plan_of_two() {
    return {{{0, {0, 3, {0, 1}}}, {1, {0, 2, {2}}}},
            {{0, {3, 1, {0, 1}}}, {1, {2, 1, {2, 3}}}},
            {{1, {3, 1, {2, 3}}}}};
}

/// Returns the verdict after one change to the plan.
template <typename Change>
Verdict changed(Change change) {
    Plan plan = plan_of_two();
    change(plan);
    return replayed(two_requests(), plan);
}

}  // namespace

TEST_CASE("The reference's plans are right, and as short as the library's",
          "[grader][decode]") {
    int preemptions = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        CAPTURE(seed);
        const Batch batch = some_requests(seed);
        const Plan plan = plan_of(batch);
        const Verdict verdict = replayed(batch, plan);
        CHECK(verdict.tokens.empty());
        CHECK(verdict.limits.empty());
        CHECK(verdict.order.empty());
        const LibraryRun library = run_library(batch);
        CHECK(verdict.last_pass + 1 == library.passes);
        CHECK(sent_back(batch, plan) == library.preemptions);
        preemptions += library.preemptions;
    }
    CHECK(preemptions > 100);
}

TEST_CASE("A plan's first mistake is named", "[grader][decode]") {
    CHECK(changed([](auto&) {}).tokens.empty());
    CHECK_THAT(changed([](auto& plan) {
                   plan[1][1].tokens.pages = {1, 3};
               }).tokens,
               ContainsSubstring("pass 1: request 1 looks for the keys of its token 0 in "
                                 "row 0 of page 1, where token 2 of request 0 was stored "
                                 "in pass 0"));
    CHECK_THAT(changed([](auto& plan) {
                   plan[1][1].tokens.pages = {3, 2};
               }).tokens,
               ContainsSubstring("row 0 of page 3, where nothing has been stored"));
    CHECK_THAT(changed([](auto& plan) { plan[2].clear(); }).tokens,
               ContainsSubstring("request 1 has 2 of its 3 tokens after 3 passes; its "
                                 "last row was in pass 1"));
    CHECK_THAT(
        changed([](auto& plan) { plan[2][0].tokens.pages = {2}; }).tokens,
        ContainsSubstring("request 1 has 4 tokens after this pass, but 1 pages of 2"));
    CHECK_THAT(changed([](auto& plan) { plan[2][0].tokens.pages[0] = -2; }).tokens,
               ContainsSubstring("request 1 has page -2, and there are 4"));
    CHECK_THAT(changed([](auto& plan) { plan[2][0].request = 7; }).tokens,
               ContainsSubstring("there is no request 7"));
    CHECK_THAT(changed([](auto& plan) { plan[2][0].request = 0; }).tokens,
               ContainsSubstring("request 0 has rows, but has all of its tokens"));
    CHECK_THAT(changed([](auto& plan) { plan[2][0].tokens.count = 2; }).tokens,
               ContainsSubstring("request 1 has 2 rows, the first for its token 3; "
                                 "before this pass it has 4 tokens"));
    CHECK_THAT(changed([](auto& plan) { plan[2][0].tokens.first = 2; }).tokens,
               ContainsSubstring("the first for its token 2; before this pass it has 4 "
                                 "tokens, of which 3 have been computed"));
    CHECK_THAT(
        changed([](auto& plan) { plan[1].insert(plan[1].begin(), plan[1][1]); }).tokens,
        ContainsSubstring("pass 1: request 1 is there twice"));
    CHECK_THAT(changed([](auto& plan) {
                   plan[0][0].tokens.count = 2;
                   plan[1][0].tokens = {2, 1, {0, 1}};
               }).order,
               ContainsSubstring("pass 0: request 1 has rows, and request 0, which has "
                                 "come before it, still lacks rows of its prompt"));
    CHECK_THAT(changed([](auto& plan) {
                   plan.push_back(plan[2]);
                   plan[2] = {plan[1][1]};
                   plan[1].pop_back();
               }).order,
               ContainsSubstring("pass 1: request 1 needs one row for its next token"));
}

TEST_CASE("The youngest request is sent back, and it waits before all others",
          "[grader][decode]") {
    const Batch batch{{6, 2, 6, 2}, {{2, 4}, {2, 4}, {1, 1}}};
    const std::vector<Share> first{{0, {0, 2, {0}}}, {1, {0, 2, {1}}}};
    CHECK_THAT(replayed(batch, {first, {{1, {2, 1, {1, 2}}}}}).order,
               ContainsSubstring("pass 1: request 1 has rows, and request 0, which has "
                                 "come before it, is sent back, not the youngest"));
    CHECK_THAT(replayed(batch, {first, {{0, {2, 1, {0, 2}}}, {2, {0, 1, {3}}}}}).order,
               ContainsSubstring("pass 1: request 2 has rows, and request 1, which has "
                                 "come before it, is sent back"));
    CHECK_THAT(
        replayed(batch,
                 {first, {{0, {2, 1, {0, 2}}}}, {{0, {3, 1, {0, 2}}}, {2, {0, 1, {3}}}}})
            .order,
        ContainsSubstring("pass 2: request 2 has rows, and request 1, which has "
                          "come before it, waits; it was sent back, so it "
                          "should be first"));
}

TEST_CASE("A wrong plan is refused", "[grader][decode]") {
    constexpr Rules kRules{.rows = 4, .sequences = 2, .pages = 2, .page_rows = 2};
    const auto read = [&](const Shape& shape, const std::vector<std::int32_t>& left) {
        return read_plan(HostTensor::of<std::int32_t>(shape, left), kRules, 3);
    };
    CHECK(read({0, 6}, {})->size() == 3);
    CHECK(read({1, 6}, {1, 7, 0, 2, 5, -1})->at(1).front().tokens ==
          PagedSequence{0, 2, {5}});
    CHECK(!read({6}, {0, 1, 0, 2, 0, 1}));
    CHECK(!read({1, 5}, {0, 1, 0, 2, 0}));
    CHECK(!read({1, 6}, {-1, 1, 0, 2, 0, 1}));
    CHECK(!read({1, 6}, {3, 1, 0, 2, 0, 1}));
    CHECK(!read_plan(HostTensor({1, 6}, DType::f64), kRules, 3));
}

}  // namespace lockstep::test
