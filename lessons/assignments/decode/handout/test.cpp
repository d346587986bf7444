// These tests are public. The grader tests more: other sizes, other numbers of ranks,
// other requests, and what your program costs.

#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/course/public_test.hpp"

using namespace lockstep;

constexpr std::uint64_t kSeed = 5;
constexpr std::int64_t kPageRows = 4;

Sizes sizes_of(std::int64_t heads, std::int64_t key_heads) {
    return {.vocabulary = 29,
            .context = 32,
            .layers = 2,
            .hidden = 16,
            .heads = heads,
            .key_heads = key_heads,
            .width = 4,
            .inner = 24};
}

/// Returns a prompt for each pair (length of the prompt, number of tokens that follow).
std::vector<Prompt> prompts_of(const Sizes& sizes,
                               const std::vector<std::pair<int, int>>& lengths) {
    std::vector<Prompt> prompts;
    prompts.reserve(lengths.size());
    for (const auto& [length, output] : lengths)
        prompts.push_back(given::random_prompt(
            sizes, kSeed, static_cast<std::int64_t>(prompts.size()), length, output));
    return prompts;
}

std::string text_of(const Tokens& tokens) {
    return fmt::format("{}", fmt::join(tokens, " "));
}

/// Compares your tokens with those of given::generate_anew.
RunReport run_generate(const Sizes& sizes, const std::vector<Prompt>& prompts, int ranks,
                       bool shared) {
    std::vector<Tokens> expected;
    sim::make_cluster(1)->run([&](Rank& rank) {
        const Gpt gpt = given::random_gpt(rank.device(), sizes, kSeed);
        for (const Prompt& prompt : prompts)
            expected.push_back(given::generate_anew(rank.device(), gpt, prompt));
    });
    std::vector<std::vector<Tokens>> got(static_cast<std::size_t>(ranks));
    RunReport report = sim::make_cluster(ranks)->run([&](Rank& rank) {
        const Gpt gpt = given::random_gpt(rank.device(), sizes, kSeed);
        got[static_cast<std::size_t>(rank.index())] =
            shared ? adapters::generate_shared(rank, gpt, prompts, kPageRows)
                   : adapters::generate(rank, gpt, prompts, kPageRows);
    });
    for (std::size_t rank = 0; rank < got.size(); ++rank) {
        expect_equal(std::ssize(got[rank]), std::ssize(prompts),
                     fmt::format("prompts for which rank {} has tokens", rank));
        for (std::size_t i = 0; i < prompts.size(); ++i)
            expect(got[rank][i] == expected[i],
                   fmt::format("rank {}: after prompt {}, of {} tokens: {} expected, "
                               "got {}",
                               rank, i, prompts[i].ids.size(), text_of(expected[i]),
                               text_of(got[rank][i])));
    }
    return report;
}

void test_tokens(const std::vector<std::pair<int, int>>& lengths, int ranks,
                 bool shared) {
    const Sizes sizes = sizes_of(8, 4);
    run_generate(sizes, prompts_of(sizes, lengths), ranks, shared);
}

void test_cache(int ranks, bool shared) {
    const Sizes sizes = sizes_of(8, 4);
    const RunReport report =
        run_generate(sizes, prompts_of(sizes, {{6, 3}, {1, 4}}), ranks, shared);
    // 8 and 4 tokens need three pages, for keys and values of 4 heads in 2 layers.
    const std::int64_t bytes = 3 * kPageRows * 2 * 4 * sizes.width * 2 * 8;
    for (const RankReport& rank : report.ranks)
        expect_equal(rank.memory.peak_of(MemoryCategory::cache), bytes / ranks,
                     "bytes of MemoryCategory::cache");
}

void test_sums() {
    const Sizes sizes = sizes_of(8, 4);
    const RunReport report =
        run_generate(sizes, prompts_of(sizes, {{6, 3}, {1, 5}}), 2, true);
    for (const RankReport& rank : report.ranks) {
        std::int64_t calls = 0;
        for (const Traffic& traffic : rank.traffic)
            calls += traffic.calls;
        expect_equal(calls, 2 * sizes.layers * 5, "collectives in five passes");
    }
}

// A batcher.

/// Writes "0: 0-2" if the rows of request 0 are its tokens 0 to 2.
std::string text_of(const std::vector<Share>& pass) {
    std::vector<std::string> shares;
    shares.reserve(pass.size());
    for (const Share& share : pass)
        shares.push_back(fmt::format("{}: {}-{}", share.request, share.tokens.first,
                                     share.tokens.first + share.tokens.count - 1));
    return fmt::format("{}", fmt::join(shares, ", "));
}

/// Expects that each request has pages for its tokens, and that requests share no page.
void expect_own_pages(const Rules& rules, const std::vector<Share>& pass) {
    std::set<std::int32_t> seen;
    for (const Share& share : pass) {
        expect(std::ssize(share.tokens.pages) * rules.page_rows >= share.tokens.tokens(),
               fmt::format("request {} has pages for {} tokens", share.request,
                           share.tokens.tokens()));
        for (const std::int32_t page : share.tokens.pages) {
            expect(page >= 0 && page < rules.pages,
                   fmt::format("page {} is one of {}", page, rules.pages));
            expect(seen.insert(page).second,
                   fmt::format("only one request has page {}", page));
        }
    }
}

void test_passes(const Rules& rules, const std::vector<Request>& requests,
                 const std::vector<std::string>& expected) {
    const std::unique_ptr<Batching> batcher = adapters::make_batcher(rules);
    for (const Request& request : requests)
        batcher->add(request);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const std::vector<Share> pass = batcher->next();
        expect(text_of(pass) == expected[i],
               fmt::format("pass {} is '{}'; got '{}'", i, expected[i], text_of(pass)));
        expect_own_pages(rules, pass);
    }
    expect(batcher->next().empty(), "nothing is left to do");
    expect_equal(batcher->free_pages(), rules.pages, "free pages in the end");
}

void test_batching() {
    // The decode of request 0 goes first. The prompt of request 1 gets the other rows.
    test_passes({.rows = 4, .sequences = 2, .pages = 4, .page_rows = 2},
                {{0, 3, 2}, {1, 2, 3}},
                {"0: 0-2, 1: 0-0", "0: 3-3, 1: 1-1", "1: 2-2", "1: 3-3"});
}

void test_places() {
    // At most two requests are under way, so request 2 begins when request 0 has ended.
    test_passes({.rows = 6, .sequences = 2, .pages = 9, .page_rows = 2},
                {{0, 2, 1}, {1, 2, 3}, {2, 5, 1}},
                {"0: 0-1, 1: 0-1", "1: 2-2, 2: 0-4", "1: 3-3"});
}

void test_sent_back() {
    // In pass 1 request 0 takes the last of three pages. None is left for request 1, the
    // youngest. Request 1 begins again when two pages are free for its three tokens.
    test_passes({.rows = 4, .sequences = 2, .pages = 3, .page_rows = 2},
                {{0, 2, 4}, {1, 2, 2}},
                {"0: 0-1, 1: 0-1", "0: 2-2", "0: 3-3", "0: 4-4", "1: 0-2"});
}

int main() {
    PublicTest test;
    test.check("a12.1 what follows a prompt", [] { test_tokens({{5, 1}}, 1, false); });
    test.check("a12.1 the first token after prompts of unequal lengths", [] {
        test_tokens({{5, 1}, {1, 1}, {9, 1}}, 1, false);
    });
    test.check("a12.1 token by token", [] { test_tokens({{5, 6}}, 1, false); });
    test.check("a12.1 sequences that end one after the other", [] {
        test_tokens({{5, 6}, {1, 2}, {9, 8}}, 1, false);
    });
    test.check("a12.1 the cache has the pages that tokens take",
               [] { test_cache(1, false); });
    test.check("a12.2 the first token after each prompt, 2 ranks", [] {
        test_tokens({{5, 1}, {1, 1}, {9, 1}}, 2, true);
    });
    test.check("a12.2 token by token, 4 ranks", [] {
        test_tokens({{5, 6}, {1, 2}, {9, 8}}, 4, true);
    });
    test.check("a12.2 a rank has the keys of its own heads", [] { test_cache(2, true); });
    test.check("a12.2 two all-reduces a layer", test_sums);
    test.check("a12.3 decodes go first, prompts in pieces", test_batching);
    test.check("a12.3 a request begins as soon as there is room", test_places);
    test.check("a12.3 the youngest is sent back", test_sent_back);
    return test.finish();
}
