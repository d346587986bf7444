#include "lessons/assignments/decode/grading/generation.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/decode/grading/causes.hpp"
#include "lessons/assignments/needs.hpp"
#include "src/cost/collectives.hpp"
#include "src/device/operation.hpp"

namespace lockstep::lessons::decode {

namespace {

std::string id_of(Way way, const char* what) {
    return fmt::format("a12.{}-{}", way == Way::alone ? 1 : 2, what);
}

/// "5", or "1 to 9".
std::string range_text(std::int64_t low, std::int64_t high) {
    return low == high ? fmt::format("{}", low) : fmt::format("{} to {}", low, high);
}

std::string name_of(const GenerationCase& of) {
    const auto [shortest, longest] =
        std::ranges::minmax(of.prompts, {}, &Lengths::prompt);
    const auto [least, most] = std::ranges::minmax(of.prompts, {}, &Lengths::output);
    return fmt::format(
        "{} rank{}, {} heads, {} of keys, {} prompt{} of {} tokens, followed by {}",
        of.ranks, of.ranks == 1 ? "" : "s", of.sizes.heads, of.sizes.key_heads,
        of.prompts.size(), of.prompts.size() == 1 ? "" : "s",
        range_text(shortest.prompt, longest.prompt),
        range_text(least.output, most.output));
}

// These are drawn anew.

/// Heads are dealt out to so many ranks, and as many have each head of keys.
GenerationCase small_case(const Judge& judge, const std::string& name, int ranks,
                          std::int64_t key_heads, std::int64_t of_each) {
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return judge.draw(fmt::format("{}: {}", name, what), low, high);
    };
    GenerationCase of;
    of.sizes = {.vocabulary = draw("vocabulary", 23, 37),
                .context = draw("context", 40, 48),
                .layers = draw("layers", 2, 3),
                .hidden = draw("hidden", 13, 20),
                .heads = key_heads * of_each,
                .key_heads = key_heads,
                .width = draw("width", 3, 5),
                .inner = 12 * draw("inner", 1, 3)};
    of.ranks = ranks;
    of.page_rows = draw("rows of a page", 3, 5);
    of.seed = draw("seed", 1, 1 << 30);
    return of;
}

/// Prompts of unequal lengths, one of them of a single token. The first to end is not the
/// last of them, and the longest is not the first.
GenerationCase with_prompts(const Judge& judge, const std::string& name,
                            GenerationCase of) {
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return judge.draw(fmt::format("{}: {}", name, what), low, high);
    };
    of.prompts = {{draw("prompt 0", 3, 6), draw("output 0", 6, 9)},
                  {1, 2},
                  {draw("prompt 2", 8, 13), draw("output 2", 4, 8)},
                  {draw("prompt 3", 2, 5), draw("output 3", 7, 10)}};
    return of;
}

std::vector<GenerationCase> cases_of(const Judge& judge, Way way) {
    const auto drawn = [&](const std::string& name, int ranks, std::int64_t key_heads,
                           std::int64_t of_each) {
        return with_prompts(judge, name,
                            small_case(judge, name, ranks, key_heads, of_each));
    };
    if (way == Way::shared) {
        const std::int64_t keys = judge.draw("heads of keys of a rank", 1, 2);
        const std::int64_t of_each = judge.draw("heads that share keys", 2, 3);
        return {drawn("two", 2, 2 * keys, of_each), drawn("three", 3, 3, 2),
                drawn("one", 1, 2, 2), drawn("four", 4, 4, of_each)};
    }
    GenerationCase one = small_case(judge, "a prompt", 1, 4, 1);
    one.prompts = {{judge.draw("the prompt", 4, 6), judge.draw("the output", 6, 8)}};
    return {one, drawn("groups", 1, judge.draw("heads of keys", 2, 3), 2),
            drawn("a head of keys", 1, 1, judge.draw("heads", 3, 5))};
}

/// One pass, of more prompts.
std::vector<GenerationCase> first_cases_of(const Judge& judge, Way way) {
    constexpr std::int64_t kMore = 6;
    std::vector<GenerationCase> cases = cases_of(judge, way);
    for (GenerationCase& of : cases) {
        for (std::int64_t i = 0; i < kMore && of.prompts.size() > 1; ++i)
            of.prompts.push_back({judge.draw(fmt::format("more {}", i), 3, 9), 1});
        for (Lengths& each : of.prompts)
            each.output = 1;
    }
    return cases;
}

/// So large that matrices and attention are most of the work.
GenerationCase large_case(const Judge& judge, Way way) {
    GenerationCase of = small_case(judge, "large", way == Way::alone ? 1 : 4, 4, 2);
    of.sizes.vocabulary = judge.draw("large: words", 390, 410);
    of.sizes.context = 64;
    of.sizes.hidden = 4 * judge.draw("large: wide", 7, 9);  // all ranks send alike
    of.sizes.width = 8;
    of.sizes.inner = 4 * judge.draw("large: inner", 23, 26);
    of.page_rows = 8;
    of.prompts = {{judge.draw("large: prompt", 20, 30), 9},
                  {5, 3},
                  {13, judge.draw("large: output", 10, 14)}};
    return of;
}

// These say whether tokens are right.

TokensOfRanks tokens_left(const GenerationCase& of, const TaskResult& result) {
    TokensOfRanks left(result.ranks.size());
    for (std::size_t rank = 0; rank < left.size(); ++rank)
        for (std::size_t i = 0; i < of.prompts.size(); ++i) {
            const std::string name = fmt::format("tokens {}", i);
            const auto found = result.ranks[rank].values.find(name);
            if (found == result.ranks[rank].values.end() ||
                found->second.dtype() != DType::i32)
                throw Judge::No{Mark::failed,
                                fmt::format("{}: tokens after prompt {}", name_of(of), i),
                                "none", ""};
            const auto tokens = found->second.values<std::int32_t>();
            left[rank].emplace_back(tokens.begin(), tokens.end());
        }
    return left;
}

std::string text_of(const Tokens& tokens) {
    constexpr std::size_t kShown = 12;
    const auto end =
        tokens.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, tokens.size()));
    return tokens.empty() ? "none"
                          : fmt::format("{}{}", fmt::join(tokens.begin(), end, " "),
                                        tokens.size() > kShown ? " ..." : "");
}

/// A run of the case, whose tokens are right on every rank.
const TaskResult& run_right(Judge& judge, Way way, const GenerationCase& of) {
    TaskRun asked{name_of(of), {}};
    asked.ranks.assign(static_cast<std::size_t>(of.ranks),
                       {way == Way::alone ? "generate" : "generate shared",
                        {},
                        numbers_of(of),
                        /*may_download=*/true});
    const TaskResult& result = judge.run(asked);
    const TokensOfRanks left = tokens_left(of, result);
    const HostGpt gpt = host_gpt(of);
    const TokensOfRanks expected = generated(gpt, of);
    for (std::size_t rank = 0; rank < left.size(); ++rank)
        for (std::size_t i = 0; i < of.prompts.size(); ++i)
            if (left[rank][i] != expected[rank][i])
                judge.ask(false,
                          fmt::format("{}: rank {}: after prompt {}, of {} tokens: {}",
                                      name_of(of), rank, i, of.prompts[i].prompt,
                                      text_of(expected[rank][i])),
                          text_of(left[rank][i]), cause_of(of, gpt, expected, left));
    judge.ask(true, name_of(of), "the same tokens");
    return result;
}

/// A run with right tokens, for what it cost.
const TaskResult& run_large(const Judge& judge, Way way) {
    needs(judge, id_of(way, "tokens"), [&](Judge& asking) { judge_tokens(asking, way); });
    Judge asking = judge;  // what is asked of tokens is not told where figures are asked
    return run_right(asking, way, large_case(judge, way));
}

/// Sums over the sequences of a case.
template <typename Of>
std::int64_t sum_over(const GenerationCase& of, Of each) {
    return std::accumulate(of.prompts.begin(), of.prompts.end(), std::int64_t{0},
                           [&](std::int64_t sum, const Lengths& lengths) {
                               return sum + std::invoke(each, lengths);
                           });
}

/// The flops of a rank if each token is computed once: of matrices and attention, and of
/// what is element by element.
std::int64_t usual_flops(const GenerationCase& of) {
    const auto& [vocabulary, context, layers, h, all_heads, all_keys, w, all_inner] =
        of.sizes;
    const std::int64_t a = all_heads / of.ranks, g = all_keys / of.ranks,
                       c = all_inner / of.ranks;
    const std::int64_t rows = sum_over(of, &Lengths::stored);
    const std::int64_t pairs = sum_over(
        of, [](const Lengths& each) { return each.stored() * (each.stored() + 1) / 2; });
    const std::int64_t wanted =
        sum_over(of, [](const Lengths& each) { return each.output; });
    // Four products with heads' columns and two with the MLP's; norms, sums and GELU.
    const std::int64_t of_row =
        h * (4 * (a + g) * w + 4 * c + 12) + (kTranscendental + 4) * c;
    const std::int64_t of_pair = a * (4 * w + kTranscendental + 4);
    return layers * (rows * of_row + pairs * of_pair) + rows * 2 * h +
           wanted * (2 * h * vocabulary + 4 * h + vocabulary);
}

/// The bytes that keys and values of one token take on a rank.
std::int64_t bytes_of_token(const GenerationCase& of) {
    return of.sizes.layers * 2 * of.sizes.key_heads / of.ranks * of.sizes.width * 8;
}

std::string at_rank(const GenerationCase& of, std::size_t rank) {
    return of.ranks == 1 ? "" : fmt::format("rank {}: ", rank);
}

}  // namespace

void judge_first(Judge& judge, Way way) {
    for (const GenerationCase& of : first_cases_of(judge, way))
        run_right(judge, way, with_telling_weights(of));
}

void judge_tokens(Judge& judge, Way way) {
    needs(judge, id_of(way, "first"), [&](Judge& asking) { judge_first(asking, way); });
    for (const GenerationCase& of : cases_of(judge, way))
        run_right(judge, way, with_telling_weights(of));
}

void judge_work(Judge& judge, Way way) {
    const TaskResult& result = run_large(judge, way);
    const GenerationCase of = large_case(judge, way);
    const std::int64_t usual = usual_flops(of);
    const std::int64_t least = usual - usual / 10, most = usual + usual / 10;
    for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
        const std::int64_t flops = result.report.ranks[rank].flops;
        judge.ask(
            flops >= least && flops <= most,
            fmt::format("{}{} tokens, each computed once: {} to {} flops",
                        at_rank(of, rank), sum_over(of, &Lengths::stored), least, most),
            fmt::format("{} flops", flops),
            flops <= most ? ""
            : way == Way::alone
                ? "some tokens are computed again, or logits of rows that nobody asks for"
                : "a rank has a / t heads, g / t of keys and c / t columns of the MLP, "
                  "and of each token logits once it is asked for what follows");
    }
}

void judge_cache(Judge& judge, Way way) {
    const TaskResult& result = run_large(judge, way);
    const GenerationCase of = large_case(judge, way);
    const std::int64_t least = sum_over(of, &Lengths::stored) * bytes_of_token(of);
    const std::int64_t pages = sum_over(of, [&](const Lengths& each) {
        return (each.stored() + of.page_rows - 1) / of.page_rows;
    });
    const std::int64_t most = pages * of.page_rows * bytes_of_token(of);
    for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
        const std::int64_t bytes =
            result.report.ranks[rank].memory.peak_of(MemoryCategory::cache);
        judge.ask(
            bytes >= least && bytes <= most,
            fmt::format("{}{} to {} bytes of cache: {} tokens on {} pages of {}",
                        at_rank(of, rank), least, most, sum_over(of, &Lengths::stored),
                        pages, of.page_rows),
            fmt::format("{} bytes", bytes),
            bytes < least ? "keys and values are allocated under a MemoryScope of "
                            "MemoryCategory::cache, and stay"
            : way == Way::shared
                ? "a rank stores the keys and values of its own heads, g / t of them"
                : "a sequence has the pages that its own tokens take, all but the "
                  "last, and keys have g heads, not a");
    }
}

void judge_sums(Judge& judge) {
    const TaskResult& result = run_large(judge, Way::shared);
    const GenerationCase of = large_case(judge, Way::shared);
    const std::int64_t passes = std::ranges::max(of.prompts, {}, &Lengths::output).output;
    const std::int64_t sums = 2 * of.sizes.layers;
    for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
        const RankReport& report = result.report.ranks[rank];
        std::int64_t calls = 0;
        for (const Traffic& traffic : report.traffic)
            calls += traffic.calls;
        judge.ask(calls == sums * passes,
                  fmt::format("rank {}: two all-reduces a layer in each of {} passes: {}",
                              rank, passes, sums * passes),
                  fmt::format("{} collectives and messages", calls),
                  calls < sums * passes
                      ? "who sends less computes what is another rank's"
                      : "keys, values and logits stay where they are; all prompts go "
                        "through in one pass, and each pass has a row of each sequence");
        const std::int64_t bytes =
            sums * collective_traffic(
                       {Verb::all_reduce,
                        sum_over(of, &Lengths::stored) * of.sizes.hidden, 8, of.ranks},
                       static_cast<int>(rank))
                       .bytes_sent;
        judge.ask(report.bytes_sent() == bytes,
                  fmt::format("rank {}: {} bytes sent: h numbers a token, in {} "
                              "all-reduces",
                              rank, bytes, sums),
                  fmt::format("{} bytes", report.bytes_sent()),
                  report.bytes_sent() < bytes
                      ? "who sends less computes what is another rank's"
                      : "rows that went through in an earlier pass go through again");
    }
}

}  // namespace lockstep::lessons::decode
