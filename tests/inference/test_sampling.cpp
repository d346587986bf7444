#include <array>
#include <cmath>

#include "src/inference/sampling.hpp"
#include "tests/catch.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

const std::vector<Candidate> kFive{{3, 2.0}, {0, 1.0}, {4, 0.5}, {1, 0.0}, {2, -1.0}};

std::vector<double> softmax(double temperature, std::size_t count) {
    std::vector<double> weights;
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i)
        sum += weights.emplace_back(std::exp(kFive[i].logit / temperature));
    for (double& weight : weights)
        weight /= sum;
    return weights;
}

void require_close(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
        CHECK_THAT(a[i], Catch::Matchers::WithinAbs(b[i], 1e-15));
}

/// Returns Pearson's statistic of `draws` chosen tokens against these probabilities.
double chi_squared(const Sampling& sampling, int draws,
                   const std::vector<double>& expected) {
    std::array<int, 5> chosen{};
    for (int i = 0; i < draws; ++i)
        ++chosen.at(static_cast<std::size_t>(sample(kFive, sampling, i)));
    double sum = 0;
    int counted = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double mean = draws * expected[i];
        const int own = chosen.at(static_cast<std::size_t>(kFive[i].token));
        sum += (own - mean) * (own - mean) / mean;
        counted += own;
    }
    CHECK(counted == draws);
    return sum;
}

}  // namespace

TEST_CASE("Temperature, top k and top p decide which tokens are chosen, and how often",
          "[inference]") {
    require_close(probabilities(kFive, {}), {1});
    require_close(probabilities(kFive, {.temperature = 1}), softmax(1, 5));
    require_close(probabilities(kFive, {.temperature = 0.5}), softmax(0.5, 5));
    require_close(probabilities(kFive, {.temperature = 1, .top_k = 3}), softmax(1, 3));
    require_close(probabilities(kFive, {.temperature = 1, .top_k = 9}), softmax(1, 5));
    // Added up, the probabilities are 0.553, 0.757, 0.880, 0.955, 1.
    require_close(probabilities(kFive, {.temperature = 1, .top_p = 0.8}), softmax(1, 3));
    require_close(probabilities(kFive, {.temperature = 1, .top_p = 0.5}), {1});
    // With only the two largest probabilities, the sums are 0.731 and 1.
    require_close(probabilities(kFive, {.temperature = 1, .top_k = 2, .top_p = 0.7}),
                  {1});
    require_close(probabilities(kFive, {.temperature = 1, .top_k = 2, .top_p = 0.8}),
                  softmax(1, 2));
}

TEST_CASE("Tokens are chosen as often as their probabilities say", "[inference]") {
    // With 4 degrees of freedom, Pearson's statistic exceeds 23.5 once in 10,000 times;
    // with 2, it exceeds 18.4. The seeds are fixed, so the result is always the same.
    CHECK(chi_squared({.temperature = 1, .seed = 1}, 20'000, softmax(1, 5)) < 23.5);
    CHECK(chi_squared({.temperature = 2, .seed = 2}, 20'000, softmax(2, 5)) < 23.5);
    CHECK(chi_squared({.temperature = 1, .top_k = 3, .seed = 3}, 20'000, softmax(1, 3)) <
          18.4);
    // Tokens that were drawn at another temperature fail the test.
    CHECK(chi_squared({.temperature = 2, .seed = 2}, 20'000, softmax(1, 5)) > 100);
    for (int i = 0; i < 100; ++i)
        REQUIRE(sample(kFive, {}, i) == 3);
}

TEST_CASE("An impossible sampling is refused", "[inference][errors]") {
    const auto said = [](const Sampling& sampling) {
        return refusal([&] { sampling.require_sound(); });
    };
    CHECK_THAT(said({.temperature = -1}), says("a temperature of -1"));
    CHECK_THAT(said({.temperature = std::nan("")}), says("a temperature of nan"));
    CHECK_THAT(said({.temperature = HUGE_VAL}), says("a temperature of inf"));
    CHECK_THAT(said({.top_k = -2}), says("top_k is -2"));
    CHECK_THAT(said({.top_p = 0}), says("top_p is 0"));
    CHECK_THAT(said({.top_p = 1.5}), says("top_p is 1.5"));
}

}  // namespace lockstep::test
