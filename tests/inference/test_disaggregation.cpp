#include <algorithm>
#include <map>

#include "src/inference/disaggregation.hpp"
#include "src/inference/gpt_service.hpp"
#include "src/inference/request_mix.hpp"
#include "tests/catch.hpp"
#include "tests/inference/serving.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

/// Ranks [0, ways) compute prompts, and an equal number of other ranks generate. Both
/// sets shard heads and columns in the same way.
struct Apart {
    int ways = 1;
    std::int64_t pages = 100;
    double per_second = 20000;
    bool numbers = true;
    int per_node = 8;  ///< devices in a node
};

std::vector<Request> some_requests(const GptSizes& sizes, double per_second) {
    return make_requests({24, per_second, 1, 30, 1, 12, sizes.vocabulary, 5});
}

struct ServedApart {
    std::vector<std::vector<Served>> of_ranks;
    RunReport report;
};

ServedApart serve_apart(const Apart& apart) {
    const GptSizes sizes = small_sizes(true, 4);
    const auto requests = some_requests(sizes, apart.per_second);
    const ServicePlan plan(sizes, {.axes = {{"tp", apart.ways}},
                                   .apart = true,
                                   .cache = {apart.pages, 4},
                                   .rules = {.most_rows = 40},
                                   .dtype = DType::f64,
                                   .seed = 7});
    ServedApart served;
    served.of_ranks.resize(static_cast<std::size_t>(plan.shape().ranks()));
    sim::ClusterOptions options;
    options.ranks = plan.shape().ranks();
    options.numbers = apart.numbers;
    options.spec = load_cluster("classroom");
    options.spec.devices_per_node = apart.per_node;
    options.spec.stragglers = {
        {plan.shape().ranks() - 1, 1, apart.per_node == 3 ? 2.0 : 1}};
    served.report = sim::make_cluster(std::move(options))->run([&](Rank& rank) {
        GptService service(rank, plan);
        served.of_ranks[static_cast<std::size_t>(rank.index())] = service.serve(requests);
    });
    return served;
}

std::map<std::int64_t, std::vector<std::int32_t>> tokens_together() {
    Serving serving{small_sizes(true, 4), {}};
    serving.requests = some_requests(serving.sizes, 0);
    std::map<std::int64_t, std::vector<std::int32_t>> tokens;
    for (const auto& [id, answer] : serve(serving).answers)
        tokens[id] = answer.tokens;
    return tokens;
}

}  // namespace

TEST_CASE("Prompts that other devices compute get the same answers", "[inference][sim]") {
    const auto expected = tokens_together();
    const int ways = GENERATE(1, 2);
    // If pages are few, requests wait for pages, and some requests give pages back.
    const std::int64_t pages = GENERATE(100, 12);
    const double per_second = GENERATE(0, 3000, 1e6);
    CAPTURE(ways, pages, per_second);
    const ServedApart served = serve_apart({ways, pages, per_second});
    for (int rank = ways; rank < 2 * ways; ++rank) {
        int preemptions = 0;
        const auto& of_rank = served.of_ranks[static_cast<std::size_t>(rank)];
        REQUIRE(of_rank.size() == expected.size());
        for (const Served& request : of_rank) {
            CAPTURE(request.answer.id);
            CHECK(request.answer.tokens == expected.at(request.answer.id));
            CHECK(request.arrival < request.first);
            CHECK(request.first <= request.last);
            preemptions += request.answer.preemptions;
        }
        if (pages == 100) CHECK(preemptions == 0);
    }
    // Each rank that computes prompts sends its heads' keys and values once.
    const GptSizes sizes = small_sizes(true, 4);
    std::int64_t tokens = 0;
    const auto requests = some_requests(sizes, 0);
    for (const Request& request : requests)
        tokens += static_cast<std::int64_t>(request.prompt.size());
    for (int rank = 0; rank < ways; ++rank) {
        std::int64_t sent = 0;
        for (const Traffic& traffic :
             served.report.ranks[static_cast<std::size_t>(rank)].traffic)
            if (traffic.group == "side") sent += traffic.bytes_sent;
        CHECK(sent == tokens * cache_bytes_of_token(sizes, DType::f64) / ways +
                          4 * static_cast<std::int64_t>(requests.size()));
    }
}

TEST_CASE("A disaggregated service takes the same time with shapes only",
          "[inference][sim]") {
    // In nodes of three, ranks of a tensor group get prompts at different times.
    const int ways = GENERATE(1, 2, 4), per_node = GENERATE(8, 3);
    CAPTURE(ways, per_node);
    Apart apart{.ways = ways, .per_node = per_node};
    const ServedApart full = serve_apart(apart);
    apart.numbers = false;
    const ServedApart shapes_only = serve_apart(apart);
    const auto &a = full.of_ranks.back(), &b = shapes_only.of_ranks.back();
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        CHECK(a[i].answer.id == b[i].answer.id);
        CHECK(a[i].first == b[i].first);
        CHECK(a[i].last == b[i].last);
    }
}

TEST_CASE("A batcher with room accepts a computed prompt", "[inference]") {
    PagePool pool(4, 4);
    Batcher batcher(pool, {.most_sequences = 2});
    const Request first = random_request(0, 9, 5, 29),
                  second = random_request(1, 3, 1, 29),
                  third = random_request(2, 5, 3, 29);
    const auto computed = batcher.join(first, 7);
    REQUIRE(computed);
    CHECK(computed->first == 0);
    CHECK(computed->count == 9);
    CHECK(computed->pages.size() == 3);
    // The request asks for only one token, so it has ended.
    REQUIRE(batcher.join(second, 8));
    const auto answers = batcher.answers();
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].tokens == std::vector<std::int32_t>{8});
    // No page is left for the third request.
    CHECK(!batcher.join(third, 9));
    CHECK(pool.free() == 1);
    CHECK_THAT(refusal([&] { batcher.join(first, 7); }),
               says("two requests under way have id 0"));
    const Pass pass = batcher.next();
    CHECK(pass.ids == std::vector<std::int32_t>{7});
    CHECK(pass.tokens.sequences[0].first == 9);
    CHECK_THAT(refusal([&] { batcher.join(third, 9); }),
               says("request 2 joins while a pass is under way"));
    batcher.take({3});
    // A waiting request is served before a request that joins.
    batcher.add(random_request(5, 1, 1, 29));
    CHECK(!batcher.join(random_request(6, 1, 2, 29), 1));
}

TEST_CASE("Tokens that a cache does not have are not sent", "[inference][sim]") {
    const auto said = [](const PagedTokens& tokens, bool layers) {
        return refusal([&] {
            sim::make_cluster(1)->run([&](Rank& rank) {
                KeyValueCache cache(rank.device(), DType::f32, {4, 4});
                if (layers) cache.add_layer(6);
                packed_tokens(cache, tokens);
            });
        });
    };
    CHECK_THAT(said({{{0, 3, {0}}}}, false),
               says("the cache has no layers yet; make a model"));
    CHECK_THAT(said({{{2, 3, {0}}}}, true),
               says("tokens 2 to 5 do not fit into the sequence's 1 pages of 4 rows"));
    CHECK_THAT(said({{{0, 3, {4}}}}, true),
               says("there is no page 4: the cache has 4 pages"));
    CHECK(said({{{0, 3, {3}}}}, true) == "nothing was refused");
}

}  // namespace lockstep::test
