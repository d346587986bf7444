#include <memory>

#include "src/inference/decoding_ring.hpp"
#include "tests/catch.hpp"
#include "tests/inference/serving.hpp"

namespace lockstep::test {

namespace {

struct Ring {
    int stages = 1;
    int groups = 1;
    GptSizes sizes;
    std::vector<Request> requests;  ///< request i is for group i % groups
    bool numbers = true;
    BatchRules rules{};
    std::int64_t pages = 64;
};

struct Rounds {
    std::map<std::int64_t, std::vector<std::int32_t>> tokens;
    Picoseconds took = 0;
    RunReport report;
};

Rounds decode(const Ring& ring) {
    Rounds rounds;
    Picoseconds begun = 0;
    sim::ClusterOptions options;
    options.ranks = ring.stages;
    options.numbers = ring.numbers;
    options.spec = load_cluster("classroom");
    rounds.report = sim::make_cluster(std::move(options))->run([&](Rank& rank) {
        Device& device = rank.device();
        KeyValueCache cache(device, DType::f64, {.pages = ring.pages, .page_rows = 4});
        const int first = ring.sizes.first_block();
        const auto blocks = static_cast<int>(ring.sizes.layers) / ring.stages;
        const int stage = rank.index();
        const auto layers =
            make_gpt_layers({device, DType::f64, 7, ""}, ring.sizes,
                            stage == 0 ? 0 : first + stage * blocks,
                            stage == ring.stages - 1 ? ring.sizes.layer_count()
                                                     : first + (stage + 1) * blocks,
                            with_cache({}, cache));
        PagePool pool(ring.pages, 4);
        std::vector<std::unique_ptr<Batcher>> batchers;
        std::vector<Batcher*> groups;
        for (int group = 0; group < ring.groups; ++group) {
            batchers.push_back(std::make_unique<Batcher>(pool, ring.rules));
            groups.push_back(batchers.back().get());
        }
        for (std::size_t i = 0; i < ring.requests.size(); ++i)
            groups[i % groups.size()]->add(ring.requests[i]);
        DecodingRing decoding(rank.world(),
                              {cache, *layers, ring.sizes.block.hidden, DType::f64,
                               [&](const Tensor& logits, std::span<const Wanted> wanted) {
                                   return sample_rows(device, logits, wanted);
                               }});
        begun = std::max(begun, device.now());
        decoding.run(groups);
        CHECK(pool.free() == ring.pages);
        for (Batcher* group : groups)
            for (const Answer& answer : group->answers()) {
                // All stages have every token of every request.
                const auto& known =
                    rounds.tokens.try_emplace(answer.id, answer.tokens).first->second;
                CHECK(known == answer.tokens);
            }
    });
    rounds.took = rounds.report.makespan() - begun;
    return rounds;
}

std::vector<Request> requests_of(std::int64_t count, std::int64_t prompt,
                                 std::int64_t output, const Sampling& sampling = {}) {
    std::vector<Request> requests;
    for (std::int64_t id = 0; id < count; ++id)
        requests.push_back(
            random_request(id, prompt + id % 3, output + id % 2, 29, sampling));
    return requests;
}

}  // namespace

TEST_CASE("A ring of stages for groups of sequences gives the same as one device",
          "[inference][sim]") {
    const bool llama = GENERATE(false, true);
    const int stages = GENERATE(1, 2, 3, 4);
    const int groups = GENERATE(1, 3, 6);
    CAPTURE(llama, stages, groups);
    Ring ring{stages, groups, small_sizes(llama, 2), requests_of(7, 5, 6)};
    ring.sizes.layers = 12;
    const Rounds rounds = decode(ring);
    REQUIRE(rounds.tokens.size() == 7);
    Serving alone{ring.sizes, ring.requests};
    for (const auto& [id, answer] : serve(alone).answers)
        CHECK(rounds.tokens.at(id) == answer.tokens);
    // Now with few pages, and prompts in pieces.
    ring.pages = 12;
    ring.rules.most_rows = 3;
    CHECK(decode(ring).tokens == rounds.tokens);
}

TEST_CASE("A ring keeps its stages busy if there are as many groups as stages",
          "[inference][sim]") {
    // The model is so large that arithmetic takes more time than launches.
    Ring ring{4, 1, {512, 64, 8, {2048, 16}}, requests_of(16, 4, 20), /*numbers=*/false};
    ring.rules.most_rows = 64;
    const auto time = [&](int stages, int groups) {
        ring.stages = stages;
        ring.groups = groups;
        return static_cast<double>(decode(ring).took);
    };
    const double one = time(1, 1);
    // With one group, one stage works while three wait. The messages make this slower
    // than one device.
    CHECK(time(4, 1) > one);
    // With four groups of four sequences, all four stages read their weights at once. One
    // device runs its four groups one after another, so the same passes are compared.
    const double in_turns = time(1, 4), round = time(4, 4);
    CHECK(in_turns / round > 3.2);
    CHECK(in_turns / round < 4);
    // More groups than stages do no harm, but do not help either.
    const double eight = time(1, 8) / time(4, 8);
    CHECK(eight > 3.4);
    CHECK(eight < 4);
}

}  // namespace lockstep::test
