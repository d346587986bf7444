// The plain batcher gives the same tokens as Batcher.

#include <map>

#include "src/inference/plain_batcher.hpp"
#include "tests/catch.hpp"
#include "tests/inference/serving.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

struct PlainlyServed {
    std::map<std::int64_t, std::vector<std::int32_t>> tokens;  ///< by request
    std::int64_t most_sequences = 0;
    int passes = 0;
};

PlainlyServed serve_plainly(const Serving& serving) {
    PlainlyServed served;
    sim::make_cluster(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        KeyValueCache cache(device, serving.dtype, serving.cache);
        const auto gpt = make_gpt({device, serving.dtype, 7, ""}, serving.sizes,
                                  with_cache({}, cache));
        PlainBatcher batcher(serving.cache, serving.rules.most_sequences);
        for (const Request& request : serving.requests)
            batcher.add(request);
        while (!batcher.idle()) {
            const Pass pass = batcher.next();
            ++served.passes;
            served.most_sequences =
                std::max(served.most_sequences, std::ssize(batcher.wanted()));
            const Tensor logits = gpt->infer(cache.begin(pass));
            batcher.take(sample_rows(device, logits, batcher.wanted()));
        }
        for (const Answer& answer : batcher.answers())
            served.tokens[answer.id] = answer.tokens;
    });
    return served;
}

}  // namespace

TEST_CASE("A plain batcher gives the tokens that a batcher gives", "[inference]") {
    Serving serving{small_sizes(true, 2), {}};
    for (const auto& [prompt, output] : std::vector<std::pair<int, int>>{
             {1, 9}, {4, 3}, {17, 6}, {30, 1}, {3, 12}, {8, 8}})
        serving.requests.push_back(random_request(std::ssize(serving.requests), prompt,
                                                  output, 29, {1.0, 12, 0.9, 5}));
    serving.rules.most_sequences = GENERATE(1, 3, 64);
    serving.cache.pages = GENERATE(8, 64);
    const PlainlyServed plain = serve_plainly(serving);
    // Without a limit on pages, all six requests are in progress at once.
    if (serving.cache.pages == 64)
        CHECK(plain.most_sequences ==
              std::min<std::int64_t>(serving.rules.most_sequences, 6));
    // The requests take 9, 3, 6, 1, 12 and 8 passes. When one of three requests ends, the
    // next request begins at once.
    if (serving.cache.pages == 64 && serving.rules.most_sequences == 3)
        CHECK(plain.passes == 16);
    REQUIRE(plain.tokens.size() == serving.requests.size());
    for (const auto& [id, answer] : serve(serving).answers) {
        CAPTURE(id);
        CHECK(plain.tokens.at(id) == answer.tokens);
    }
}

TEST_CASE("A plain batcher refuses requests that can never be answered",
          "[inference][errors]") {
    CHECK_THAT(refusal([] { PlainBatcher({.pages = 4, .page_rows = 0}, 2); }),
               says("4 pages of 0 rows for 2 sequences at once; all three must be"));
    PlainBatcher batcher({.pages = 4, .page_rows = 4}, 2);
    CHECK_THAT(refusal([&] { batcher.add(random_request(7, 10, 8, 29)); }),
               says("request 7 has a prompt of 10 tokens and asks for 8; both must be "
                    "positive, and fit into 4 pages of 4"));
    batcher.add(random_request(8, 10, 7, 29));
    batcher.next();
    CHECK_THAT(refusal([&] { batcher.take({}); }),
               says("0 tokens were taken; the pass expects 1"));
}

}  // namespace lockstep::test
