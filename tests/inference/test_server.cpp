#include <cmath>
#include <map>
#include <numeric>

#include "src/inference/request_mix.hpp"
#include "src/inference/service_report.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "tests/catch.hpp"
#include "tests/inference/serving.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

constexpr Picoseconds kMillisecond = kSecond / 1000;

/// A service without a model: a pass takes 1 ms, plus 0.1 ms for each row.
std::vector<Served> serve_rows(const std::vector<Request>& requests,
                               const BatchRules& rules = {}, std::int64_t pages = 1000) {
    std::vector<Served> served;
    sim::make_cluster(1)->run([&](Rank& rank) {
        PagePool pool(pages, 4);
        Batcher batcher(pool, rules);
        Device& device = rank.device();
        served = serve(device, ServiceRanks(), batcher, requests,
                       [&](const Pass& pass, const std::vector<Wanted>& wanted) {
                           device.sleep_until(device.now() + kMillisecond +
                                              pass.tokens.rows() * kMillisecond / 10);
                           return std::vector<std::int32_t>(wanted.size(), 1);
                       });
    });
    return served;
}

Request at_millisecond(std::int64_t id, Picoseconds milliseconds, std::int64_t prompt,
                       std::int64_t output) {
    Request request = random_request(id, prompt, output, 29);
    request.arrival = milliseconds * kMillisecond;
    return request;
}

/// Returns the times of the first and last token, in tenths of a millisecond.
std::vector<Picoseconds> tenths(const Served& request) {
    return {request.first * 10 / kMillisecond, request.last * 10 / kMillisecond};
}

}  // namespace

TEST_CASE("A service's times follow from its passes", "[inference][sim]") {
    // The first request arrives at 5 ms. Its prompt of 10 rows takes 2.0 ms. The second
    // request arrives at 6 ms and waits until 7 ms. Its 5 rows and the first request's
    // decode take 1 + 0.5 + 0.1 ms. The last decode takes 1.1 ms.
    const auto served =
        serve_rows({at_millisecond(0, 5, 10, 3), at_millisecond(1, 6, 5, 1)});
    REQUIRE(served.size() == 2);
    CHECK(served[0].answer.id == 1);
    CHECK(tenths(served[0]) == std::vector<Picoseconds>{86, 86});
    CHECK(served[0].to_first() == 26 * kMillisecond / 10);
    CHECK(served[0].per_token() == 0);
    CHECK(tenths(served[1]) == std::vector<Picoseconds>{70, 97});
    CHECK(served[1].per_token() == 27 * kMillisecond / 20);

    // Between the two requests nothing happens.
    const auto apart =
        serve_rows({at_millisecond(0, 0, 10, 1), at_millisecond(1, 500, 10, 1)});
    CHECK(tenths(apart[0]) == std::vector<Picoseconds>{20, 20});
    CHECK(tenths(apart[1]) == std::vector<Picoseconds>{5020, 5020});
}

TEST_CASE("Requests without free pages wait, and are answered", "[inference][sim]") {
    std::vector<Request> requests;
    for (std::int64_t id = 0; id < 6; ++id)
        requests.push_back(at_millisecond(id, 0, 8, 20));
    const auto served = serve_rows(requests, {}, /*pages=*/12);
    REQUIRE(served.size() == 6);
    int preemptions = 0;
    for (const Served& request : served) {
        CHECK(request.answer.tokens.size() == 20);
        preemptions += request.answer.preemptions;
    }
    CHECK(preemptions > 0);
    // All pages belong to other sequences, so waiting does not help.
    CHECK_THAT(refusal([&] {
                   sim::make_cluster(1)->run([&](Rank& rank) {
                       PagePool pool(4, 4);
                       SequencePages others;
                       pool.grow(others, 15);
                       Batcher batcher(pool, {});
                       serve(rank.device(), ServiceRanks(), batcher,
                             {at_millisecond(0, 0, 2, 2)},
                             [](const Pass&, const std::vector<Wanted>&) {
                                 return std::vector<std::int32_t>();
                             });
                   });
               }),
               says("no sequence can continue: other sequences have the pool's pages"));
}

TEST_CASE("A long prompt delays decodes unless it is split into pieces",
          "[inference][sim]") {
    // Four requests generate tokens when a prompt of 400 rows arrives. In one pass, it
    // delays all four by 41.4 ms. In pieces, it delays a token by at most one full pass.
    std::vector<Request> requests;
    for (std::int64_t id = 0; id < 4; ++id)
        requests.push_back(at_millisecond(id, 0, 4, 60));
    requests.push_back(at_millisecond(4, 10, 400, 1));
    const auto longest = [&](const BatchRules& rules) {
        Picoseconds most = 0;
        for (const Served& request : serve_rows(requests, rules))
            if (request.answer.id < 4) most = std::max(most, request.last);
        return most * 10 / kMillisecond;
    };
    // 60 tokens take one pass of 16 rows, 59 passes of 4 rows, and the time of the
    // prompt's rows. Each piece leaves one row for each of the four requests.
    CHECK(longest({.most_rows = 64, .pieces = false}) == 26 + 59 * 14 + 400);
    CHECK(longest({.most_rows = 64}) == 26 + 59 * 14 + 400);
    // The pieces need the same work, but in seven passes of at most 7.4 ms each.
    const auto slowest_step = [&](const BatchRules& rules) {
        Picoseconds most = 0, before = 0;
        sim::make_cluster(1)->run([&](Rank& rank) {
            PagePool pool(1000, 4);
            Batcher batcher(pool, rules);
            Device& device = rank.device();
            serve(device, ServiceRanks(), batcher, requests,
                  [&](const Pass& pass, const std::vector<Wanted>& wanted) {
                      before = device.now();
                      device.sleep_until(before + kMillisecond +
                                         pass.tokens.rows() * kMillisecond / 10);
                      if (wanted.size() >= 4)
                          most = std::max(most, device.now() - before);
                      return std::vector<std::int32_t>(wanted.size(), 1);
                  });
        });
        return most * 10 / kMillisecond;
    };
    CHECK(slowest_step({.most_rows = 64, .pieces = false}) == 10 + 404);
    CHECK(slowest_step({.most_rows = 64}) == 10 + 64);
}

TEST_CASE("Sequences that join at once are answered sooner", "[inference][sim]") {
    // One answer is long, the others are short. If requests cannot join, all wait for it.
    std::vector<Request> requests{at_millisecond(0, 0, 4, 100)};
    for (std::int64_t id = 1; id < 8; ++id)
        requests.push_back(at_millisecond(id, id, 4, 2));
    const auto mean = [&](bool continuous) {
        double sum = 0;
        for (const Served& request : serve_rows(requests, {.continuous = continuous}))
            sum += static_cast<double>(request.to_first()) / 1e9;
        return sum / 8;
    };
    CHECK(mean(true) < 3);
    CHECK(mean(false) > 90);
}

TEST_CASE("A report's percentiles and goodput follow from its requests", "[inference]") {
    std::vector<Served> served;
    for (std::int64_t i = 1; i <= 100; ++i) {
        Served request;
        request.answer = {i, {1, 2, 3}, static_cast<int>(i % 2), 4};
        request.arrival = i * kMillisecond;
        request.first = 2 * i * kMillisecond;  // i ms after the arrival
        request.last = request.first + 20 * kMillisecond;
        served.push_back(request);
    }
    const ServiceReport report =
        report_of(served, {50 * kMillisecond, 15 * kMillisecond});
    CHECK(report.requests == 100);
    CHECK(report.tokens == 300);
    CHECK(report.preemptions == 50);
    CHECK(report.reused == 400);
    CHECK(report.to_first.p50 == 50 * kMillisecond);
    CHECK(report.to_first.p90 == 90 * kMillisecond);
    CHECK(report.to_first.p99 == 99 * kMillisecond);
    CHECK(report.per_token.p50 == 10 * kMillisecond);
    CHECK_THAT(report.kept, Catch::Matchers::WithinAbs(0.5, 1e-12));
    CHECK_THAT(report.seconds, Catch::Matchers::WithinAbs(0.219, 1e-12));
    CHECK_THAT(report.goodput, Catch::Matchers::WithinAbs(50 / 0.219, 1e-9));
    CHECK(report_of(served, {0, 9 * kMillisecond}).kept == 0);
    CHECK(report_of({}, {}).requests == 0);
}

TEST_CASE("Requests arrive at random, at the given rate", "[inference]") {
    const RequestMix mix{4000, 20, 3, 9, 1, 5, 50, 11};
    const auto requests = make_requests(mix);
    REQUIRE(requests.size() == 4000);
    CHECK(make_requests(mix).back().prompt == requests.back().prompt);
    double prompts = 0, outputs = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const Request& request = requests[i];
        const auto length = static_cast<std::int64_t>(request.prompt.size());
        REQUIRE((length >= 3 && length <= 9));
        REQUIRE((request.output >= 1 && request.output <= 5));
        for (const std::int32_t token : request.prompt)
            REQUIRE((token >= 0 && token < 50));
        if (i > 0) REQUIRE(request.arrival >= requests[i - 1].arrival);
        prompts += static_cast<double>(length) / 4000;
        outputs += static_cast<double>(request.output) / 4000;
    }
    // Deviations: 2 / sqrt(4000) and 1.41 / sqrt(4000) for the means, 200 s / sqrt(4000)
    // for the last arrival. Four deviations are exceeded once in 15,000 times.
    CHECK_THAT(prompts, Catch::Matchers::WithinAbs(6, 4 * 2 / std::sqrt(4000.0)));
    CHECK_THAT(outputs, Catch::Matchers::WithinAbs(3, 4 * 1.42 / std::sqrt(4000.0)));
    CHECK_THAT(static_cast<double>(requests.back().arrival) / 1e12,
               Catch::Matchers::WithinAbs(200, 4 * 200 / std::sqrt(4000.0)));
    // Without a rate, all requests arrive at time 0.
    for (const Request& request : make_requests({.count = 3}))
        CHECK(request.arrival == 0);
    const auto said = [](const RequestMix& wrong) {
        return refusal([&] { make_requests(wrong); });
    };
    CHECK_THAT(said({}), says("0 requests, a vocabulary of 1"));
    CHECK_THAT(said({.count = 1, .per_second = -1}), says("-1 requests a second"));
    CHECK_THAT(said({.count = 1, .least_prompt = 3, .most_prompt = 2}),
               says("prompts of 3 to 2 tokens"));
    CHECK_THAT(said({.count = 9, .per_second = 1e-7}),
               says("would come after 1000000 s"));
    CHECK_THAT(said({.count = 1, .vocabulary = std::int64_t{1} << 40}),
               says("a vocabulary of 1099511627776"));
    CHECK_THAT(refusal([] {
                   serve_rows({at_millisecond(3, 0, 9, 9), at_millisecond(3, 1, 1, 1)});
               }),
               says("two requests under way have id 3"));
    CHECK_THAT(refusal([] {
                   serve_rows({at_millisecond(0, 5, 1, 1), at_millisecond(1, 4, 1, 1)});
               }),
               says("the requests are not in the order of their arrivals"));
}

namespace {

struct Sharing {
    int ways = 1;
    bool numbers = true;
    double slowness = 1;  ///< of the last rank
};

/// Answers requests on ranks that shard heads and columns.
std::vector<std::vector<Served>> serve_shared(const Sharing& sharing) {
    const auto [ways, numbers, slowness] = sharing;
    const GptSizes sizes = small_sizes(true, 4);
    std::vector<std::vector<Served>> served(static_cast<std::size_t>(ways));
    sim::ClusterOptions options;
    options.ranks = ways;
    options.numbers = numbers;
    options.spec = load_cluster("classroom");
    if (slowness != 1) options.spec.stragglers = {{ways - 1, slowness, 1}};
    sim::make_cluster(std::move(options))->run([&](Rank& rank) {
        Device& device = rank.device();
        TensorParallel tp(device, rank.world());
        KeyValueCache cache(device, DType::f64, {.pages = 40, .page_rows = 4});
        const auto gpt = make_gpt({device, DType::f64, 7, ""}, sizes,
                                  with_cache(tensor_parallel({}, tp), cache));
        PagePool pool(40, 4);
        Batcher batcher(pool, {.most_rows = 16});
        const auto requests = make_requests({20, 2000, 1, 30, 1, 8, sizes.vocabulary, 5});
        served[static_cast<std::size_t>(rank.index())] = serve(
            device, {&rank.world()}, batcher, requests,
            [&](const Pass& pass, const std::vector<Wanted>& wanted) {
                return sample_rows(device, rank.world(), gpt->infer(cache.begin(pass)),
                                   sizes.vocabulary, wanted);
            });
    });
    return served;
}

}  // namespace

TEST_CASE("Ranks give the same answers even if one of them is slower",
          "[inference][sim]") {
    const auto alone = serve_shared({});
    const auto shared = serve_shared({.ways = 4, .slowness = 1.5});
    REQUIRE(alone[0].size() == 20);
    std::map<std::int64_t, std::vector<std::int32_t>> tokens;
    for (const Served& request : alone[0])
        tokens[request.answer.id] = request.answer.tokens;
    for (const auto& of_rank : shared) {
        REQUIRE(of_rank.size() == 20);
        for (const Served& request : of_rank)
            CHECK(tokens.at(request.answer.id) == request.answer.tokens);
    }
}

TEST_CASE("A service that computes only shapes takes the same time", "[inference][sim]") {
    const int ways = GENERATE(1, 4);
    const auto full = serve_shared({.ways = ways}),
               shapes_only = serve_shared({.ways = ways, .numbers = false});
    REQUIRE(full.back().size() == shapes_only.back().size());
    for (std::size_t i = 0; i < full.back().size(); ++i) {
        CHECK(full.back()[i].answer.id == shapes_only.back()[i].answer.id);
        CHECK(full.back()[i].first == shapes_only.back()[i].first);
        CHECK(full.back()[i].last == shapes_only.back()[i].last);
    }
}

}  // namespace lockstep::test
