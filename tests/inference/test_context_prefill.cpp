#include <algorithm>

#include "src/inference/context_prefill.hpp"
#include "src/inference/disaggregation.hpp"
#include "src/parallel/context_parallel.hpp"
#include "tests/catch.hpp"
#include "tests/inference/serving.hpp"
#include "tests/nn/fixture.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

struct Prefill {
    GptSizes sizes;
    std::int64_t prompt = 0;
    int ways = 1;
    ContextMethod method = ContextMethod::ring_attention;
    TokenOrder order = TokenOrder::contiguous;
};

constexpr std::int64_t kOutput = 9;

Request request_of(const Prefill& prefill) {
    return random_request(3, prefill.prompt, kOutput, prefill.sizes.vocabulary);
}

/// The result of a run. Ranks 1 and up compute the prompt together and send their caches
/// to rank 0. Rank 0, whose pages have another size, generates all further tokens. The
/// logits are those of the first token.
struct Generated {
    HostTensor logits;
    std::vector<std::int32_t> tokens;
    RunReport report;
};

constexpr CacheSizes kPrefillPages{.pages = 30, .page_rows = 5};
constexpr CacheSizes kDecodePages{.pages = 30, .page_rows = 4};

/// Returns the rank that has the prompt's last token.
int rank_of_last(const Prefill& prefill) {
    for (int way = 0; way < prefill.ways; ++way) {
        const TokenDeal deal{prefill.order, prefill.ways, way};
        if (!prompt_share(deal, {}, request_of(prefill).prompt, 0).wanted.empty())
            return way;
    }
    return -1;
}

/// Returns pages for the prompt, the pool's last page first.
SequencePages some_pages(const CacheSizes& sizes, std::int64_t tokens) {
    SequencePages pages;
    for (std::int64_t i = 0; i * sizes.page_rows < tokens; ++i)
        pages.pages.push_back(static_cast<std::int32_t>(sizes.pages - 1 - i));
    return pages;
}

void compute_prompt(Rank& rank, Communicator& ranks, const Prefill& prefill,
                    Generated& generated) {
    Device& device = rank.device();
    const Request request = request_of(prefill);
    KeyValueCache cache(device, DType::f64, kPrefillPages);
    const GptKit kit = context_parallel({}, ranks, prefill.method, prefill.order);
    const auto gpt =
        make_gpt({device, DType::f64, 7, ""}, prefill.sizes, filling_cache(kit, cache));
    const std::int64_t all = filled_up(kit.tokens, prefill.prompt);
    const Pass pass = prompt_share(kit.tokens, some_pages(kPrefillPages, all),
                                   request.prompt, kPrefillPages.page_rows);
    const Tensor logits = gpt->infer(cache.begin(pass));
    if (!pass.wanted.empty()) {
        generated.logits = device.peek(logits).reshaped({prefill.sizes.vocabulary});
        const Wanted last{{}, prefill.prompt, request.id};
        const auto first = sample_rows(device, logits, std::span(&last, 1));
        rank.world()
            .send(device.upload(HostTensor::of<std::int32_t>({1}, first)), 0)
            .wait();
    }
    rank.world()
        .send(packed_tokens(cache, before(pass.tokens, prefill.prompt)), 0)
        .wait();
}

void generate(Rank& rank, const Prefill& prefill, Generated& generated) {
    Device& device = rank.device();
    const Request request = request_of(prefill);
    KeyValueCache cache(device, DType::f64, kDecodePages);
    const auto gpt =
        make_gpt({device, DType::f64, 7, ""}, prefill.sizes, with_cache({}, cache));
    PagePool pool(kDecodePages.pages, kDecodePages.page_rows);
    Batcher batcher(pool, {});
    const Tensor first = device.empty({1}, DType::i32);
    rank.world().recv(first, 1 + rank_of_last(prefill)).wait();
    const auto sequence =
        batcher.join(request, static_cast<std::int32_t>(device.download(first).at(0)));
    for (int way = 0; way < prefill.ways; ++way) {
        const TokenDeal deal{prefill.order, prefill.ways, way};
        const Pass pass = prompt_share(deal, {sequence->pages}, request.prompt, 0);
        const PagedTokens tokens = before(pass.tokens, prefill.prompt);
        const Tensor packed = cache.empty_tokens(tokens.rows());
        rank.world().recv(packed, 1 + way).wait();
        unpack_tokens(cache, tokens, packed);
    }
    while (!batcher.idle()) {
        const Pass pass = batcher.next();
        batcher.take(
            sample_rows(device, gpt->infer(cache.begin(pass)), batcher.wanted()));
    }
    generated.tokens = batcher.answers().at(0).tokens;
}

Generated run(const Prefill& prefill) {
    Generated generated;
    generated.report = sim::make_cluster(1 + prefill.ways)->run([&](Rank& rank) {
        const bool computes = rank.index() > 0;
        const auto ranks = rank.world().split(computes ? 1 : 0, 0);
        if (computes)
            compute_prompt(rank, *ranks, prefill, generated);
        else
            generate(rank, prefill, generated);
    });
    return generated;
}

}  // namespace

TEST_CASE("Ranks that shard a prompt's tokens fill the same cache as one rank",
          "[inference][sim]") {
    const bool llama = GENERATE(false, true);
    const auto [ways, order] = GENERATE(table<int, TokenOrder>({
        {1, TokenOrder::contiguous},
        {2, TokenOrder::contiguous},
        {4, TokenOrder::contiguous},
        {2, TokenOrder::zigzag},
        {4, TokenOrder::zigzag},
        {4, TokenOrder::striped},
    }));
    const auto method = GENERATE(ContextMethod::ring_attention, ContextMethod::gather);
    const std::int64_t prompt = GENERATE(1, 32, 37);
    CAPTURE(llama, ways, order, method, prompt);
    const Prefill prefill{small_sizes(llama, 4), prompt, ways, method, order};
    const Generated generated = run(prefill);
    const Request request = request_of(prefill);
    CHECK(nn_test::relative_difference(
              generated.logits,
              whole_logits(prefill.sizes, DType::f64, request.prompt)) <= 1e-12);
    Serving serving{prefill.sizes, {request}};
    const Outcome served = serve(serving);
    CHECK(generated.tokens == served.answers.at(request.id).tokens);
    // Keys and values are sent once. The first token is also sent once.
    std::int64_t to_first = 0;
    for (const RankReport& rank : generated.report.ranks)
        for (const Traffic& traffic : rank.traffic)
            if (traffic.group == "world") to_first += traffic.bytes_sent;
    CHECK(to_first == prompt * cache_bytes_of_token(prefill.sizes, DType::f64) + 4);
}

TEST_CASE("Sharded prompts are padded to equal shares", "[inference]") {
    CHECK(filled_up({TokenOrder::contiguous, 4, 0}, 37) == 40);
    CHECK(filled_up({TokenOrder::zigzag, 4, 0}, 37) == 40);
    CHECK(filled_up({TokenOrder::zigzag, 4, 0}, 41) == 48);
    CHECK(filled_up({TokenOrder::striped, 3, 0}, 1) == 3);
    const std::vector<std::int32_t> prompt{5, 6, 7, 8, 9};
    SequencePages pages{{2, 1}, 0};
    const Pass pass = prompt_share({TokenOrder::zigzag, 2, 0}, pages, prompt, 4);
    CHECK(pass.ids == std::vector<std::int32_t>{5, 6, 0, 0});
    CHECK(pass.tokens.sequences ==
          std::vector<PagedSequence>{{0, 2, {2, 1}}, {6, 2, {2, 1}}});
    CHECK(pass.wanted.empty());
    const Pass other = prompt_share({TokenOrder::zigzag, 2, 1}, pages, prompt, 4);
    CHECK(other.ids == std::vector<std::int32_t>{7, 8, 9, 0});
    CHECK(other.wanted == std::vector<std::int32_t>{2});
    CHECK_THAT(refusal([] {
                   sim::make_cluster(1)->run([](Rank& rank) {
                       KeyValueCache cache(rank.device(), DType::f32, {.pages = 1});
                       filling_cache({}, cache);
                   });
               }),
               says("needs a GptKit with its own attention"));
}

}  // namespace lockstep::test
