#include <array>
#include <cmath>

#include "src/inference/speculation.hpp"
#include "tests/catch.hpp"
#include "tests/inference/serving.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

const Distribution kLarge{0.4, 0.3, 0.2, 0.1, 0.0};
const Distribution kSmall{0.1, 0.5, 0.1, 0.1, 0.2};

/// Returns drafts of the small model. Each draft uses its own random number.
std::vector<std::int32_t> drafts_of(const Distribution& from, int count,
                                    std::uint64_t seed) {
    std::vector<std::int32_t> drafts;
    for (int i = 0; i < count; ++i) {
        const double uniform =
            RandomStream(seed, "drafts").uniform(static_cast<std::uint64_t>(i));
        drafts.push_back(static_cast<std::int32_t>(place_of(from, uniform)));
    }
    return drafts;
}

/// Two GPTs with the same vocabulary; the small one drafts.
struct Pair {
    GptSizes large = small_sizes(true, 4);
    GptSizes small = small_sizes(true, 4);
    std::uint64_t small_seed = 8;  ///< if 7, with equal sizes: the large model's weights
    bool numbers = true;
};

SpeculationReport speculate_with(const Pair& pair, const Request& request,
                                 const Speculation& speculation) {
    SpeculationReport report;
    sim::ClusterOptions options;
    options.numbers = pair.numbers;
    options.spec = load_cluster("classroom");
    sim::make_cluster(std::move(options))->run([&](Rank& rank) {
        Device& device = rank.device();
        const CacheSizes sizes{.pages = 40, .page_rows = 4};
        KeyValueCache large_cache(device, DType::f64, sizes),
            small_cache(device, DType::f64, sizes);
        PagePool large_pool(40, 4), small_pool(40, 4);
        const auto large = make_gpt({device, DType::f64, 7, ""}, pair.large,
                                    with_cache({}, large_cache));
        const auto small = make_gpt({device, DType::f64, pair.small_seed, ""}, pair.small,
                                    with_cache({}, small_cache));
        report = speculate(device, {*large, large_cache, large_pool},
                           {*small, small_cache, small_pool}, request, speculation);
        CHECK(large_pool.free() == 40);
        CHECK(small_pool.free() == 40);
    });
    return report;
}

}  // namespace

TEST_CASE("Accepted tokens have the large model's distribution", "[inference]") {
    constexpr int kDrafts = 3, kTimes = 20'000;
    std::array<int, 5> first{}, drafted_first{};
    std::array<std::array<int, 5>, 5> pairs{};
    double tokens = 0, squares = 0;
    int with_two = 0;
    const std::vector<Distribution> small(kDrafts, kSmall), large(kDrafts + 1, kLarge);
    for (int time = 0; time < kTimes; ++time) {
        const auto seed = static_cast<std::uint64_t>(time);
        const auto drafts = drafts_of(kSmall, kDrafts, seed);
        ++drafted_first.at(static_cast<std::size_t>(drafts[0]));
        const auto out = accepted(drafts, small, large, seed, 10);
        REQUIRE((!out.empty() && out.size() <= kDrafts + 1));
        // All tokens except the last are drafts.
        for (std::size_t i = 0; i + 1 < out.size(); ++i)
            REQUIRE(out[i] == drafts[i]);
        ++first.at(static_cast<std::size_t>(out[0]));
        if (out.size() > 1) {
            ++with_two;
            ++pairs.at(static_cast<std::size_t>(out[0]))
                  .at(static_cast<std::size_t>(out[1]));
        }
        const auto count = static_cast<double>(out.size());
        tokens += count / kTimes;
        squares += count * count / kTimes;
    }
    // Pearson's statistic of four tokens, with 3 degrees of freedom, exceeds 21.1 once in
    // 10,000 times. A token with probability 0 is never chosen.
    double statistic = 0;
    for (std::size_t token = 0; token < 4; ++token) {
        const double mean = kTimes * kLarge[token];
        statistic += (first.at(token) - mean) * (first.at(token) - mean) / mean;
    }
    CHECK(first[4] == 0);
    CHECK(statistic < 21.1);
    // This also holds for the second token, whatever the first token (an accepted draft)
    // was.
    std::array<int, 5> second{};
    for (const auto& row : pairs)
        for (std::size_t token = 0; token < 5; ++token)
            second.at(token) += row.at(token);
    statistic = 0;
    for (std::size_t token = 0; token < 4; ++token) {
        const double mean = with_two * kLarge[token];
        statistic += (second.at(token) - mean) * (second.at(token) - mean) / mean;
    }
    CHECK(second[4] == 0);
    CHECK(statistic < 21.1);
    // Tokens per pass agree with the paper's equation 1, within 4 deviations (exceeded
    // once in 15,000 times).
    const double alpha = acceptance(kSmall, kLarge);
    CHECK_THAT(alpha, Catch::Matchers::WithinAbs(0.1 + 0.3 + 0.1 + 0.1, 1e-15));
    const double deviation = std::sqrt((squares - tokens * tokens) / kTimes);
    CHECK_THAT(tokens, Catch::Matchers::WithinAbs(expected_tokens(alpha, kDrafts),
                                                  4 * deviation));
    // The drafts have the small model's distribution, and the statistic detects this.
    statistic = 0;
    for (std::size_t token = 0; token < 4; ++token) {
        const double mean = kTimes * kLarge[token];
        const double off = drafted_first.at(token) - mean;
        statistic += off * off / mean;
    }
    CHECK(statistic > 1000);
}

TEST_CASE("The mean number of tokens of a pass is a geometric series", "[inference]") {
    CHECK(expected_tokens(0, 5) == 1);
    CHECK(expected_tokens(1, 5) == 6);
    CHECK_THAT(expected_tokens(0.5, 2), Catch::Matchers::WithinAbs(1.75, 1e-15));
    CHECK_THAT(expected_tokens(0.8, 4), Catch::Matchers::WithinAbs(3.3616, 1e-12));
}

TEST_CASE("Greedy speculation gives the large model's tokens exactly",
          "[inference][sim]") {
    const int drafts = GENERATE(1, 3, 6);
    CAPTURE(drafts);
    Serving alone{small_sizes(true, 4), {}};
    for (std::int64_t id = 0; id < 6; ++id)
        alone.requests.push_back(random_request(id, 1 + 4 * id, 15, 29));
    const Outcome plain = serve(alone);
    for (const bool shallow : {false, true}) {
        Pair pair;
        if (shallow) pair.small.layers = 1;
        for (const Request& request : alone.requests) {
            const auto report = speculate_with(pair, request, {.drafts = drafts});
            CHECK(report.tokens == plain.answers.at(request.id).tokens);
            CHECK(report.passes <= 15);
            CHECK(report.stayed + report.passes == 15);
        }
    }
}

TEST_CASE("Speculation goes no further than the requested length", "[inference][sim]") {
    // The first request fills the context (learnt positions), the last fills all pages.
    Pair pair;
    pair.large = pair.small = small_sizes(false, 8);
    pair.large.context = pair.small.context = 20;
    Serving alone{pair.large, {random_request(1, 12, 9, 29)}};
    const auto report = speculate_with(pair, alone.requests[0], {.drafts = 4});
    CHECK(report.tokens == serve(alone).answers.at(1).tokens);
    const auto one = speculate_with(pair, random_request(1, 12, 1, 29), {});
    CHECK(one.tokens.size() == 1);
    CHECK(one.drafted == 0);
    const auto most = speculate_with(Pair(), random_request(2, 150, 11, 29), {});
    CHECK(most.tokens.size() == 11);
}

TEST_CASE("A draft model that is the large one is always right", "[inference][sim]") {
    Pair pair;
    pair.small_seed = 7;
    for (const double temperature : {0.0, 1.0}) {
        const auto report = speculate_with(
            pair, random_request(3, 5, 20, 29, {temperature, 0, 0.9, 4}), {.drafts = 4});
        CHECK(report.passes == 4);
        CHECK(report.stayed == report.drafted);
    }
}

TEST_CASE("With a temperature, tokens have the large model's frequencies",
          "[inference][sim]") {
    // One prompt and four possible tokens; the small model has other weights.
    Pair pair;
    for (GptSizes* sizes : {&pair.large, &pair.small}) {
        sizes->vocabulary = 4;
        sizes->layers = 1;
    }
    const std::vector<std::int32_t> prompt{1, 3, 0, 2};
    const HostTensor logits = whole_logits(pair.large, DType::f64, prompt);
    const std::vector<double> row{logits.at(0), logits.at(1), logits.at(2), logits.at(3)};
    const Distribution expected = distribution_of(row, {.temperature = 1});
    constexpr int kTimes = 1500;
    std::array<int, 4> chosen{};
    std::int64_t stayed = 0, drafted = 0;
    for (int time = 0; time < kTimes; ++time) {
        const Request request{
            0, 0, prompt, 2, {1, 0, 1, static_cast<std::uint64_t>(time)}};
        const auto report = speculate_with(pair, request, {.drafts = 1});
        ++chosen.at(static_cast<std::size_t>(report.tokens.at(0)));
        stayed += report.stayed;
        drafted += report.drafted;
    }
    double statistic = 0;
    for (std::size_t token = 0; token < 4; ++token) {
        const double mean = kTimes * expected[token];
        statistic += (chosen.at(token) - mean) * (chosen.at(token) - mean) / mean;
    }
    CHECK(statistic < 21.1);  // 3 degrees of freedom: exceeded once in 10,000 times
    CHECK(stayed > 0);
    CHECK(stayed < drafted);
}

TEST_CASE("Without numbers, speculation uses a stated acceptance", "[inference][sim]") {
    Pair pair;
    pair.numbers = false;
    pair.large.context = pair.small.context = 200;
    std::int64_t passes = 0, tokens = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const auto report =
            speculate_with(pair, random_request(1, 5, 100, 29, {0, 0, 1, seed}),
                           {.drafts = 3, .stated_acceptance = 0.7});
        passes += report.passes;
        tokens += report.stayed + report.passes;
    }
    CHECK_THAT(static_cast<double>(tokens) / static_cast<double>(passes),
               Catch::Matchers::WithinAbs(expected_tokens(0.7, 3), 0.2));
}

TEST_CASE("An impossible speculation is refused", "[inference][errors]") {
    CHECK_THAT(refusal([] { accepted(std::vector{1}, {}, {}, 0, 0); }),
               says("1 drafts with 0 distributions of the small model and 0 of the"));
    const std::vector<Distribution> one{{0.5, 0.5}}, two{{0.5, 0.5}, {0.5, 0.25, 0.25}};
    CHECK_THAT(refusal([&] { accepted(std::vector{1}, one, two, 0, 0); }),
               says("distributions over 3 and 2 tokens"));
    CHECK_THAT(refusal([&] {
                   accepted(std::vector{2}, one, {{{0.5, 0.5}, {0.5, 0.5}}}, 0, 0);
               }),
               says("draft 2 is not one of the 2 tokens"));
    CHECK_THAT(refusal([] {
                   distribution_of(std::vector{1.0, std::nan("")}, {});
               }),
               says("2 logits, or one of them is NaN"));
    CHECK_THAT(refusal([] { distribution_of({}, {}); }), says("0 logits"));
    CHECK(expected_tokens(0.5, INT32_MAX) == 2);
    CHECK_THAT(refusal([] {
                   speculate_with({}, random_request(0, 1, 1, 29),
                                  {.stated_acceptance = 7});
               }),
               says("an acceptance probability of 7"));
    CHECK_THAT(refusal([] { expected_tokens(1.5, 2); }),
               says("an acceptance probability of 1.5 and 2 drafts"));
    CHECK_THAT(refusal([] { speculate_with({}, random_request(0, 1, 1, 29), {0}); }),
               says("0 drafts, a prompt of 1 tokens"));
    CHECK_THAT(refusal([] { speculate_with({}, random_request(0, 70, 100, 29), {}); }),
               says("does not fit into the cache: 40 pages of 4 rows"));
}

}  // namespace lockstep::test
