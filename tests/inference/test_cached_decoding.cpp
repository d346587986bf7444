#include <algorithm>
#include <functional>

#include "src/nn/published_sizes.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "tests/catch.hpp"
#include "tests/inference/serving.hpp"
#include "tests/nn/fixture.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

using nn_test::relative_difference;

std::int32_t largest_token(const HostTensor& logits) {
    std::int64_t best = 0;
    for (std::int64_t i = 1; i < logits.elements(); ++i)
        if (logits.at(i) > logits.at(best)) best = i;
    return static_cast<std::int32_t>(best);
}

/// Prompts of different lengths: one token, one full page, several pages.
std::vector<Request> some_requests(const Sampling& sampling = {}) {
    std::vector<Request> requests;
    std::int64_t id = 0;
    for (const auto& [prompt, output] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 9}, {4, 3}, {17, 6}, {30, 1}, {3, 12}, {8, 8}})
        requests.push_back(random_request(id++, prompt, output, 29, sampling));
    return requests;
}

/// Requires that each token has the logits that a model without a cache computes in one
/// forward of all tokens before it, and is the token with the largest logit.
void require_whole(const Serving& serving, const Outcome& served) {
    for (const Request& request : serving.requests) {
        CAPTURE(request.id);
        const Answer& answer = served.answers.at(request.id);
        REQUIRE(static_cast<std::int64_t>(answer.tokens.size()) == request.output);
        std::vector<std::int32_t> ids = request.prompt;
        const auto& logits = served.logits.at(request.id);
        REQUIRE(logits.size() == answer.tokens.size());
        for (std::size_t i = 0; i < logits.size(); ++i) {
            const HostTensor whole = whole_logits(serving.sizes, serving.dtype, ids);
            CHECK(relative_difference(logits[i], whole) <= 1e-12);
            CHECK(answer.tokens[i] == largest_token(whole));
            ids.push_back(answer.tokens[i]);
        }
    }
}

std::map<std::int64_t, std::vector<std::int32_t>> tokens_of(const Outcome& served) {
    std::map<std::int64_t, std::vector<std::int32_t>> tokens;
    for (const auto& [id, answer] : served.answers)
        tokens[id] = answer.tokens;
    return tokens;
}

}  // namespace

TEST_CASE("Decoding with a cache gives the same as whole sequences", "[inference][sim]") {
    const bool llama = GENERATE(false, true);
    const std::int64_t kv_heads = GENERATE(8, 2, 1);
    CAPTURE(llama, kv_heads);
    const Serving serving{small_sizes(llama, kv_heads), some_requests()};
    const Outcome served = serve(serving);
    require_whole(serving, served);
    CHECK(served.preemptions == 0);
    CHECK(served.free_pages == serving.cache.pages);
}

TEST_CASE("Latent attention caches latents, and gives the same as with keys",
          "[inference][sim]") {
    Serving serving{small_sizes(true), some_requests()};
    serving.sizes.block.latent = {20, 12, 6, 4, 8};
    const Outcome served = serve(serving);
    require_whole(serving, served);
    CHECK(cache_bytes_of_token(serving.sizes, DType::f64) ==
          std::int64_t{2} * (12 + 4) * 8);
    CHECK(served.report.ranks[0].memory.peak_of(MemoryCategory::cache) ==
          std::int64_t{64} * 4 * 2 * (12 + 4) * 8);
    serving.row_by_row = true;
    serving.dtype = DType::f32;
    Serving alone = serving;
    alone.rules.most_sequences = 1;
    CHECK(serve(serving).logits == serve(alone).logits);
}

TEST_CASE("Tensor parallel ranks give the same as one rank", "[inference][sim]") {
    const bool llama = GENERATE(false, true);
    const auto [ways, kv_heads] = GENERATE(table<int, std::int64_t>(
        {{2, 8}, {4, 8}, {8, 8}, {2, 2}, {4, 4}, {4, 2}, {8, 2}, {8, 1}}));
    CAPTURE(llama, ways, kv_heads);
    Serving serving{small_sizes(llama, kv_heads), some_requests()};
    serving.ways = ways;
    const Outcome served = serve(serving);
    require_whole(serving, served);
}

TEST_CASE("Ranks with requests of their own shard the experts", "[inference][sim]") {
    const int ways = GENERATE(1, 2, 4);
    const bool shared = GENERATE(false, true);
    CAPTURE(ways, shared);
    Serving serving{small_sizes(true, 2), some_requests()};
    serving.sizes.block.experts.count = 4;
    serving.sizes.block.experts.inner = 24;
    serving.sizes.block.experts.shared = shared ? 24 : 0;
    serving.sizes.block.experts.gate.chosen = 2;
    serving.ways = ways;
    serving.own_requests = true;
    // Ranks finish their requests at different times, but all take part until the end.
    const Outcome served = serve(serving);
    REQUIRE(served.answers.size() == serving.requests.size());
    require_whole(serving, served);
}

TEST_CASE("Prompts in pieces, reused pages and preemptions change no token",
          "[inference][sim]") {
    const bool llama = GENERATE(false, true);
    const Sampling sampling{1.0, 12, 0.9, 5};
    Serving serving{small_sizes(llama, 2), some_requests(sampling)};
    // Two more requests have the same prompts as earlier requests.
    for (const std::int64_t like : {2, 3}) {
        Request request = serving.requests[static_cast<std::size_t>(like)];
        request.id += 10;
        request.output += 4;
        serving.requests.push_back(request);
    }
    const Outcome all = serve(serving);
    CHECK(all.preemptions == 0);
    const auto expected = tokens_of(all);

    Serving pieces = serving;
    pieces.rules.most_rows = 5;
    const Outcome in_pieces = serve(pieces);
    CHECK(in_pieces.most_rows <= 5);
    CHECK(in_pieces.passes > all.passes);
    CHECK(tokens_of(in_pieces) == expected);

    Serving late = serving;
    late.apart = 3;
    const Outcome found = serve(late);
    CHECK(found.answers.at(13).reused >= 28);
    CHECK(tokens_of(found) == expected);
    late.reuse = false;
    const Outcome again = serve(late);
    CHECK(again.answers.at(13).reused == 0);
    CHECK(tokens_of(again) == expected);

    Serving tight = serving;
    tight.cache.pages = 11;
    const Outcome preempted = serve(tight);
    CHECK(preempted.preemptions > 0);
    CHECK(preempted.free_pages == 11);
    CHECK(tokens_of(preempted) == expected);

    Serving one_by_one = serving;
    one_by_one.rules = {.most_sequences = 1};
    CHECK(tokens_of(serve(one_by_one)) == expected);
    Serving in_batches = serving;
    in_batches.rules = {.most_sequences = 3, .pieces = false, .continuous = false};
    CHECK(tokens_of(serve(in_batches)) == expected);
}

TEST_CASE("Row by row, logits do not depend on other rows of the batch",
          "[inference][sim]") {
    const DType dtype = GENERATE(DType::f32, DType::f64, DType::bf16);
    const bool llama = GENERATE(false, true);
    const int ways = GENERATE(1, 2);
    CAPTURE(dtype, llama, ways);
    Serving serving{small_sizes(llama, 4), some_requests({1.0, 0, 0.95, 3})};
    serving.dtype = dtype;
    serving.ways = ways;
    serving.row_by_row = true;
    const Outcome all = serve(serving);
    // In `others`, prompts are in pieces, pages are few, and the requests are reversed.
    Serving others = serving;
    others.rules.most_rows = 7;
    others.cache = {.pages = 9, .page_rows = 5};
    std::ranges::reverse(others.requests);
    const Outcome other = serve(others);
    CHECK(other.preemptions > 0);
    for (const Request& request : serving.requests) {
        CAPTURE(request.id);
        CHECK(all.answers.at(request.id).tokens == other.answers.at(request.id).tokens);
        // The logits are also the same if a token is computed again after a preemption.
        CHECK(all.logits.at(request.id) == other.logits.at(request.id));
    }
}

TEST_CASE("The simulator's products are batch invariant without a setting",
          "[inference][sim]") {
    Serving serving{small_sizes(true, 4), some_requests()};
    serving.dtype = DType::f32;
    Serving alone = serving;
    alone.rules.most_sequences = 1;
    CHECK(serve(serving).logits == serve(alone).logits);
}

TEST_CASE("A cache needs 2 g w numbers for each token and layer", "[inference]") {
    CHECK(cache_bytes_of_token(llama3_405b(1), DType::bf16) == 516'096);
    CHECK(cache_bytes_of_token(qwen2_5_72b(1), DType::bf16) == 327'680);
    CHECK(llama3_405b(1).parameters() == 405'853'388'800);
    // The published weights also have 819,200 biases.
    CHECK(qwen2_5_72b(1).parameters() == 72'705'384'448);
    CHECK(cache_bytes_of_token(deepseek_v3(4096), DType::bf16) == 70'272);
    // First with all heads of keys, then with a fifth of them.
    GptSizes sizes = llama2_13b(1);
    CHECK(cache_bytes_of_token(sizes, DType::bf16) == 819'200);
    sizes.block.kv_heads = 8;
    CHECK(cache_bytes_of_token(sizes, DType::bf16) == 163'840);

    // A rank holds its heads' part of a token's bytes, page by page.
    const int ways = GENERATE(1, 4);
    Serving serving{small_sizes(true, 4), some_requests()};
    serving.ways = ways;
    serving.numbers = GENERATE(true, false);
    const Outcome served = serve(serving);
    for (const RankReport& rank : served.report.ranks)
        CHECK(rank.memory.peak_of(MemoryCategory::cache) ==
              std::int64_t{64} * 4 * cache_bytes_of_token(serving.sizes, DType::f64) /
                  ways);
}

TEST_CASE("Impossible uses of a cache are refused", "[inference][errors]") {
    const GptSizes sizes = small_sizes(false);
    const auto refusal_of =
        [&](const std::function<void(KeyValueCache&, Module&)>& call) {
            return refusal([&] {
                sim::ClusterOptions options;
                options.spec = load_cluster("classroom");
                sim::make_cluster(std::move(options))->run([&](Rank& rank) {
                    KeyValueCache cache(rank.device(), DType::f64,
                                        {.pages = 4, .page_rows = 4});
                    const auto gpt = make_gpt({rank.device(), DType::f64, 7, ""}, sizes,
                                              with_cache({}, cache));
                    call(cache, *gpt);
                });
            });
        };
    const Pass pass{{{{0, 2, {0}}}}, {3, 4}, {1}, 4};
    CHECK_THAT(refusal_of([&](KeyValueCache& cache, Module&) {
                   cache.begin({pass.tokens, pass.ids, pass.wanted, 2});
               }),
               says("the cache has pages of 4 rows, but the pool has pages of 2"));
    CHECK_THAT(refusal_of([&](KeyValueCache& cache, Module&) {
                   cache.begin({{{{0, -2, {0}}}}, {}, {}, 0});
               }),
               says("a sequence has -2 rows, but the pass has 0 ids"));
    CHECK_THAT(refusal_of([&](KeyValueCache& cache, Module& gpt) {
                   gpt.infer(cache.device().zeros({2, 1}, DType::i32));
               }),
               says("infer was called before begin()"));
    CHECK_THAT(
        refusal_of([&](KeyValueCache& cache, Module& gpt) {
            Saved saved;
            gpt.forward(cache.begin(pass), saved);
        }),
        says("attention with a cache has no forward, because it saves nothing for a"));
    CHECK_THAT(refusal_of([&](KeyValueCache& cache, Module&) {
                   cache.begin({pass.tokens, {3, 4, 5}, {1}, 0});
               }),
               says("the pass has 2 rows, but 3 ids"));
    CHECK_THAT(refusal_of([&](KeyValueCache& cache, Module&) {
                   cache.begin({pass.tokens, {3, 4}, {2}, 0});
               }),
               says("the logits of row 2 are wanted, but the pass has 2 rows"));
    CHECK_THAT(
        refusal([&] {
            PagePool pool(4, 4);
            Batcher batcher(pool, {});
            batcher.add(random_request(7, 10, 8, 29));
        }),
        says("request 7 has a prompt of 10 tokens and asks for 8; the cache has room "
             "for 16 tokens (4 pages of 4)"));
}

TEST_CASE("Heads of keys that cannot be copied are refused", "[inference][errors]") {
    Serving serving{small_sizes(true, 6), some_requests()};
    serving.sizes.block.heads = 12;
    serving.ways = 4;
    CHECK_THAT(refusal([&] { serve(serving); }),
               says("6 heads of keys and values for 4 ranks; one must divide the other"));
    const auto on_two = [](const std::function<void(Rank&, TensorParallel&)>& call) {
        return refusal([&] {
            sim::make_cluster(2)->run([&](Rank& rank) {
                TensorParallel tp(rank.device(), rank.world());
                call(rank, tp);
            });
        });
    };
    CHECK_THAT(on_two([](Rank&, TensorParallel& tp) { copy_key_heads({}, tp); }),
               says("copy_key_heads(): the kit's layers are not sharded"));
    CHECK_THAT(on_two([](Rank& rank, TensorParallel& tp) {
                   const auto attention = make_attention(
                       {rank.device(), DType::f64, 7, "attn"}, 8, {4, true, 1},
                       copy_key_heads(tensor_parallel({}, tp), tp));
                   Saved saved;
                   const Tensor x = rank.device().zeros({3, 1, 8}, DType::f64);
                   attention->backward(attention->forward(x, saved), saved);
               }),
               says("backward of attn.c_attn.weight: several ranks hold copies of it"));
}

}  // namespace lockstep::test
