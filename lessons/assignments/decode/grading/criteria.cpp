#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/decode/grading/replay.hpp"
#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

namespace {

using namespace decode;

// a12.1 and a12.2: what follows prompts.

/// Says who generates.
enum class Way { alone, shared };

std::string name_of(Way way) {
    return way == Way::alone ? "a12.1" : "a12.2";
}

/// "5", or "1 to 9".
std::string range_text(std::int64_t low, std::int64_t high) {
    return low == high ? fmt::format("{}", low) : fmt::format("{} to {}", low, high);
}

std::string name_of(const Case& drawn) {
    const auto [shortest, longest] =
        std::ranges::minmax(drawn.prompts, {}, &Asked::prompt);
    const auto [least, most] = std::ranges::minmax(drawn.prompts, {}, &Asked::output);
    return fmt::format(
        "{} rank{}, {} heads, {} of keys, {} prompt{} of {} tokens, followed by {}",
        drawn.ranks, drawn.ranks == 1 ? "" : "s", drawn.sizes.heads,
        drawn.sizes.key_heads, drawn.prompts.size(), drawn.prompts.size() == 1 ? "" : "s",
        range_text(shortest.prompt, longest.prompt),
        range_text(least.output, most.output));
}

TaskRun given(Way way, const Case& drawn) {
    TaskRun run{name_of(drawn), {}};
    run.ranks.assign(static_cast<std::size_t>(drawn.ranks),
                     {way == Way::alone ? "generate" : "generate shared",
                      {},
                      numbers_of(drawn),
                      /*may_download=*/true});
    return run;
}

/// Returns what follows each prompt, as a rank left it; nothing if it left something
/// else.
std::vector<Tokens> tokens_left(const TaskRun& run, const RankResult& rank) {
    std::vector<Tokens> tokens(run.ranks.front().numbers.at("prompts"));
    const auto left = rank.tensors.find("tokens");
    if (left == rank.tensors.end() || left->second.dtype() != DType::i32) return tokens;
    const auto all = left->second.values<std::int32_t>();
    const std::size_t most = all.size() / tokens.size();
    for (std::size_t i = 0; i < most * tokens.size(); ++i)
        if (all[i] >= 0) tokens[i / most].push_back(all[i]);
    return tokens;
}

// The grader's cases, drawn anew for each grading.

/// Heads are dealt out to so many ranks, and each head of keys has `of_each` of them.
Case small_case(const Judge& judge, const std::string& name, int ranks,
                std::int64_t key_heads, std::int64_t of_each) {
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return judge.draw(fmt::format("{}: {}", name, what), low, high);
    };
    Case drawn;
    drawn.sizes = {.vocabulary = draw("vocabulary", 23, 37),
                   .context = draw("context", 40, 48),
                   .layers = draw("layers", 2, 3),
                   .hidden = draw("hidden", 13, 20),
                   .heads = key_heads * of_each,
                   .key_heads = key_heads,
                   .width = draw("width", 3, 5),
                   .inner = 12 * draw("inner", 1, 3)};
    drawn.ranks = ranks;
    drawn.rules.page_rows = draw("rows of a page", 3, 5);
    drawn.seed = draw("seed", 1, 1 << 30);
    return drawn;
}

/// Prompts of unequal lengths, one of them of a single token. The first to end is not the
/// last of them, and the longest is not the first.
Case case_of_four(const Judge& judge, const std::string& name, int ranks,
                  std::int64_t key_heads, std::int64_t of_each) {
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return judge.draw(fmt::format("{}: {}", name, what), low, high);
    };
    Case drawn = small_case(judge, name, ranks, key_heads, of_each);
    drawn.prompts = {{draw("prompt 0", 3, 6), draw("output 0", 6, 9)},
                     {1, 2},
                     {draw("prompt 2", 8, 13), draw("output 2", 4, 8)},
                     {draw("prompt 3", 2, 5), draw("output 3", 7, 10)}};
    return drawn;
}

std::vector<Case> drawn_cases(const Judge& judge, Way way) {
    if (way == Way::shared) {
        const std::int64_t keys = judge.draw("heads of keys of a rank", 1, 2);
        const std::int64_t of_each = judge.draw("heads that share keys", 2, 3);
        return {case_of_four(judge, "two", 2, 2 * keys, of_each),
                case_of_four(judge, "three", 3, 3, 2),
                case_of_four(judge, "one", 1, 2, 2),
                case_of_four(judge, "four", 4, 4, of_each)};
    }
    Case one = small_case(judge, "a prompt", 1, 4, 1);
    one.prompts = {{judge.draw("the prompt", 4, 6), judge.draw("the output", 6, 8)}};
    return {one, case_of_four(judge, "groups", 1, judge.draw("heads of keys", 2, 3), 2),
            case_of_four(judge, "a head of keys", 1, 1, judge.draw("heads", 3, 5))};
}

/// One pass, of more prompts. The case of one prompt comes last: by one token mistakes
/// cannot be told apart.
std::vector<Case> drawn_first_cases(const Judge& judge, Way way) {
    constexpr std::int64_t kMore = 6;
    std::vector<Case> cases = drawn_cases(judge, way);
    std::stable_partition(cases.begin(), cases.end(),
                          [](const Case& drawn) { return drawn.prompts.size() > 1; });
    for (Case& drawn : cases) {
        for (std::int64_t i = 0; i < kMore && drawn.prompts.size() > 1; ++i)
            drawn.prompts.push_back({judge.draw(fmt::format("more {}", i), 3, 9), 1});
        for (Asked& each : drawn.prompts)
            each.output = 1;
    }
    return cases;
}

/// So large that matrices and attention are most of the work.
Case large_case(const Judge& judge, Way way) {
    Case drawn = small_case(judge, "large", way == Way::alone ? 1 : 4, 4, 2);
    drawn.sizes.vocabulary = judge.draw("large: words", 390, 410);
    drawn.sizes.context = 64;
    // All ranks send the same number of bytes.
    drawn.sizes.hidden = 4 * judge.draw("large: wide", 7, 9);
    drawn.sizes.width = 8;
    drawn.sizes.inner = 4 * judge.draw("large: inner", 23, 26);
    drawn.rules.page_rows = 8;
    drawn.prompts = {{judge.draw("large: prompt", 20, 30), 9},
                     {5, 3},
                     {13, judge.draw("large: output", 10, 14)}};
    return drawn;
}

// What is asked of a run.

std::string text_of(const Tokens& tokens) {
    constexpr std::size_t kShown = 12;
    const auto end =
        tokens.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, tokens.size()));
    return tokens.empty() ? "none"
                          : fmt::format("{}{}", fmt::join(tokens.begin(), end, " "),
                                        tokens.size() > kShown ? " ..." : "");
}

using TokensOfRanks = std::vector<std::vector<Tokens>>;

/// Returns why tokens are wrong, if no mistake that the grader knows leaves them.
std::string cause_of(const TokensOfRanks& left, const std::vector<Tokens>& expected) {
    for (const std::vector<Tokens>& rank : left)
        if (rank != left[0])
            return "ranks do not generate the same tokens: each must have whole sums "
                   "before it goes on";
    const auto first = [](const Tokens& tokens) { return tokens.at(0); };
    if (std::ranges::equal(left[0], expected, {}, first, first))
        return "the first token of each is right, and so is the pass of the prompts; "
               "what is wrong is in those that follow: the place, the pages or the token "
               "that goes in";
    return "";
}

/// Says which tokens are wrong, in whole sequences, and why.
void tell_tokens(Judge::No& no, const TaskRun& run, const TokensOfRanks& left,
                 const std::vector<Tokens>& expected) {
    bool as_many = true;
    for (std::size_t rank = left.size(); rank-- > 0;)
        for (std::size_t i = expected.size(); i-- > 0;) {
            if (left[rank][i] == expected[i]) continue;
            as_many = as_many && left[rank][i].size() == expected[i].size();
            no.asked =
                fmt::format("{}: rank {}: after prompt {}, of {} tokens: {}", run.name,
                            rank, i, run.ranks[0].numbers.at(fmt::format("prompt {}", i)),
                            text_of(expected[i]));
            no.measured = text_of(left[rank][i]);
        }
    if (!as_many)
        no.said = "each prompt gets as many tokens as it asks for: Prompt::output";
    else if (no.said.empty())
        no.said = cause_of(left, expected);
}

/// Returns a run that leaves the right tokens on every rank.
TaskRun right_run(Judge& judge, Way way, const Case& drawn) {
    TaskRun run = given(way, drawn);
    const TaskResult& result = judge.run(run);
    try {
        judge.as_right(run, {{"tokens"}});
    } catch (Judge::No& no) {
        TokensOfRanks left;
        for (const RankResult& rank : result.ranks)
            left.push_back(tokens_left(run, rank));
        tell_tokens(no, run, left, tokens_left(run, judge.right(run).ranks[0]));
        throw;
    }
    judge.ask(true, run.name, "the same tokens");
    return run;
}

void judge_first(Judge& judge, Way way) {
    for (const Case& drawn : drawn_first_cases(judge, way))
        right_run(judge, way, drawn);
}

void judge_tokens(Judge& judge, Way way) {
    for (const Case& drawn : drawn_cases(judge, way))
        right_run(judge, way, drawn);
}

/// What is asked of its tokens is not told where figures are asked.
TaskRun large_run(const Judge& judge, Way way) {
    Judge asking = judge;
    return right_run(asking, way, large_case(judge, way));
}

void judge_work(Judge& judge, Way way) {
    const TaskRun run = large_run(judge, way);
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
        judge.figure_as_right(
            run, fmt::format("{}: rank {}: each token once", name_of(way), rank), "flops",
            [=](const RunReport& report) { return report.ranks[rank].flops; }, {10, 10},
            way == Way::alone
                ? "some tokens are computed again, or logits of rows that nobody asks for"
                : "a rank has a / t heads, g / t of keys and c / t columns of the MLP, "
                  "and of each token logits once it is asked for what follows");
}

/// Keys and values of all tokens lie on pages, which may have some free rows.
void judge_cache(Judge& judge, Way way) {
    const TaskRun run = large_run(judge, way);
    const Case drawn = large_case(judge, way);
    std::int64_t tokens = 0, pages = 0;
    for (const Asked& each : drawn.prompts) {
        tokens += each.stored();
        pages += (each.stored() + drawn.rules.page_rows - 1) / drawn.rules.page_rows;
    }
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        const auto held = [&](const TaskResult& result) {
            return result.report.ranks[rank].memory.peak_of(MemoryCategory::cache);
        };
        const std::int64_t most = held(judge.right(run));
        const std::int64_t least = most * tokens / (pages * drawn.rules.page_rows);
        const std::int64_t bytes = held(judge.run(run));
        judge.ask(
            bytes >= least && bytes <= most,
            fmt::format("{}: rank {}: {} to {} bytes of cache: {} tokens on {} pages of "
                        "{}",
                        name_of(way), rank, least, most, tokens, pages,
                        drawn.rules.page_rows),
            fmt::format("{} bytes", bytes),
            bytes < least ? "keys and values are allocated under a MemoryScope of "
                            "MemoryCategory::cache, and stay"
            : way == Way::shared
                ? "a rank stores the keys and values of its own heads, g / t of them"
                : "a sequence has the pages that its own tokens take, all but the "
                  "last, and keys have g heads, not a");
    }
}

std::int64_t calls_of(const RankReport& rank) {
    std::int64_t calls = 0;
    for (const Traffic& traffic : rank.traffic)
        calls += traffic.calls;
    return calls;
}

void judge_sums(Judge& judge) {
    const TaskRun run = large_run(judge, Way::shared);
    const auto ask = [&](const std::string& what, std::int64_t expected,
                         std::int64_t measured, const char* more) {
        judge.ask(measured == expected, fmt::format("{}: {}", what, expected),
                  fmt::format("{}", measured),
                  measured < expected ? "who sends less computes what is another rank's"
                                      : more);
    };
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        const RankReport& right = judge.right(run).report.ranks[rank];
        const RankReport& own = judge.run(run).report.ranks[rank];
        ask(fmt::format("rank {}: two all-reduces a layer in each pass", rank),
            calls_of(right), calls_of(own),
            "keys, values and logits stay where they are; all prompts go through in one "
            "pass, and each pass has a row of each sequence");
        ask(fmt::format("rank {}: bytes sent, of h numbers a token in each", rank),
            right.bytes_sent(), own.bytes_sent(),
            "rows that went through in an earlier pass go through again");
    }
}

// a12.3: what a batcher plans.

/// Requests are drawn from this.
struct Mix {
    const char* name;
    Rules rules;
    std::int64_t requests;
    std::int64_t most_prompt;
    std::int64_t most_output;
    std::int64_t most_apart;  ///< passes from one arrival to the next
    int sent_back;            ///< at least, by the reference
};

struct Batch {
    Case drawn;
    TaskRun run;
};

Batch drawn_batch(const Judge& judge, const Mix& mix, int trial) {
    const auto draw = [&](const char* what, std::int64_t i, std::int64_t low,
                          std::int64_t high) {
        return judge.draw(fmt::format("{} {} {} {}", mix.name, trial, what, i), low,
                          high);
    };
    Case drawn{.rules = mix.rules};
    std::int64_t pass = 0;
    for (std::int64_t i = 0; i < mix.requests; ++i) {
        pass += draw("apart", i, 0, mix.most_apart);
        const Asked& last = drawn.prompts.emplace_back(
            Asked{draw("prompt", i, 1, mix.most_prompt),
                  draw("output", i, 1 + mix.most_output / 2, mix.most_output), pass});
        drawn.passes += last.output + (last.prompt + mix.rules.rows - 1) / mix.rules.rows;
    }
    // A batcher that serves one request after another needs no more.
    drawn.passes += pass + 20;
    const auto& [rows, sequences, pages, page_rows] = mix.rules;
    TaskRun run{
        fmt::format("{}: {} requests (draw {}), passes of {} rows and {} "
                    "sequences, {} pages of {}",
                    mix.name, mix.requests, trial + 1, rows, sequences, pages, page_rows),
        {{"batch", {}, numbers_of(drawn)}}};
    return {std::move(drawn), std::move(run)};
}

/// Returns rules near these.
Rules varied(const Judge& judge, const char* name, Rules rules) {
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return judge.draw(fmt::format("{}: {}", name, what), low, high);
    };
    rules.rows += draw("rows", -1, 1);
    rules.sequences += draw("sequences", 0, 1);
    rules.pages += draw("pages", -1, 1);
    rules.page_rows += draw("rows of a page", 0, 1);
    return rules;
}

/// A batch's plan as a run left it, and what is wrong with it.
struct Judged {
    Plan plan;
    Verdict verdict;
};

Judged judged(const Batch& batch, const TaskResult& result) {
    const auto left = result.ranks.front().values.find("plan");
    const auto plan = left == result.ranks.front().values.end() ? std::nullopt
                                                                : read_plan(left->second);
    if (!plan)
        throw Judge::No{Mark::failed, "passes, and the pages that are free", "none", ""};
    return {*plan, replayed(batch.drawn, plan->shares)};
}

/// Draws until the reference has to send so many back.
Batch drawn_batch(const Judge& judge, Mix mix) {
    constexpr int kMostTrials = 200;
    mix.rules = varied(judge, mix.name, mix.rules);
    Batch batch;
    for (int trial = 0; trial < kMostTrials; ++trial) {
        batch = drawn_batch(judge, mix, trial);
        if (judged(batch, judge.right(batch.run)).verdict.sent_back >= mix.sent_back)
            break;
    }
    return batch;
}

/// Requests that wait for rows, for one of few places, for pages, and that come late.
std::vector<Batch> all_batches(const Judge& judge) {
    return {drawn_batch(judge, {"long prompts", {8, 4, 64, 4}, 8, 26, 8, 2, 0}),
            drawn_batch(judge, {"many at once", {12, 3, 48, 4}, 10, 8, 12, 0, 0}),
            drawn_batch(judge, {"few pages", {10, 5, 9, 3}, 9, 9, 14, 1, 2}),
            drawn_batch(judge, {"late requests", {6, 3, 10, 4}, 6, 12, 6, 12, 0})};
}

/// A sentence of a verdict is what was measured.
void ask(Judge& judge, const Batch& batch, const char* asked, const std::string& wrong) {
    judge.ask(wrong.empty(), fmt::format("{}: {}", batch.run.name, asked),
              wrong.empty() ? "so it is" : wrong);
}

void judge_batched_tokens(Judge& judge) {
    for (const Batch& batch : all_batches(judge))
        ask(judge, batch, "each row finds its own tokens, and all get theirs",
            judged(batch, judge.run(batch.run)).verdict.tokens);
}

void judge_entry(Judge& judge, std::string Verdict::*entry, const char* asked) {
    for (const Batch& batch : all_batches(judge)) {
        Verdict verdict;
        judge.needs("a12.3-tokens", [&](Judge& asking) {
            verdict = judged(batch, asking.run(batch.run)).verdict;
            // What is wrong here may be why tokens never come.
            if (!verdict.unfinished || (verdict.*entry).empty())
                ask(asking, batch, "", verdict.tokens);
        });
        ask(judge, batch, asked, verdict.*entry);
    }
}

void judge_passes(Judge& judge) {
    for (const Batch& batch : all_batches(judge)) {
        const auto passes = [&](const TaskResult& result) {
            return judged(batch, result).verdict.passes;
        };
        const std::int64_t right = passes(judge.right(batch.run));
        const std::int64_t most = right + right / 20, own = passes(judge.run(batch.run));
        judge.ask(
            own <= most, fmt::format("{}: at most {} passes", batch.run.name, most),
            fmt::format("{} passes", own),
            "a request joins as soon as rows, a place and pages for the tokens that "
            "it has are free; prompts take what rows the decodes leave; nothing is "
            "kept for tokens that are yet to come");
    }
}

void judge_pages(Judge& judge) {
    for (const Batch& batch : all_batches(judge)) {
        Judged own;
        judge.needs("a12.3-tokens",
                    [&](Judge& asking) { own = judged(batch, asking.run(batch.run)); });
        const std::int64_t free = own.plan.free, pages = batch.drawn.rules.pages;
        judge.ask(free == pages,
                  fmt::format("{}: {} free pages in the end", batch.run.name, pages),
                  fmt::format("{}", free),
                  free < pages ? "pages come back when a request has its last token, and "
                                 "when it is sent back: all of them"
                               : "pages come back once, and only from who has them");
        judge.needs("a12.3-tokens",
                    [&](Judge& asking) { ask(asking, batch, "", own.verdict.tokens); });
    }
}

/// A criterion of what follows prompts needs another one.
Criterion of_generation(Way way, const std::string& what, const char* title, int points,
                        void (*judged)(Judge&, Way), const std::string& needed = "") {
    Criterion criterion{fmt::format("{}-{}", name_of(way), what), title, points,
                        way == Way::shared ? lesson_step("tensor-parallel-block", "block")
                                           : lesson_step("inference", "generate"),
                        [=](Judge& judge) { judged(judge, way); }};
    if (!needed.empty()) criterion.needs = {fmt::format("{}-{}", name_of(way), needed)};
    return criterion;
}

Criterion of_batching(const char* id, const char* title, int points, const char* step,
                      std::function<void(Judge&)> judged) {
    return {id, title, points, lesson_step("inference", step), std::move(judged)};
}

std::vector<Criterion> all_criteria() {
    std::vector<Criterion> all{
        of_generation(Way::alone, "first", "what follows prompts of unequal lengths", 10,
                      judge_first),
        of_generation(Way::alone, "tokens", "token by token, what whole sequences give",
                      12, judge_tokens, "first"),
        of_generation(Way::alone, "work", "each token is computed once", 8, judge_work,
                      "tokens"),
        of_generation(Way::alone, "cache", "the cache has the pages that tokens take", 6,
                      judge_cache, "tokens"),
        of_generation(Way::shared, "first", "every rank knows what follows prompts", 8,
                      judge_first),
        of_generation(Way::shared, "tokens", "every rank has one device's tokens", 6,
                      judge_tokens, "first"),
        of_generation(Way::shared, "work", "a rank computes its own heads and columns", 6,
                      judge_work, "tokens"),
        of_generation(Way::shared, "cache", "a rank stores the keys of its own heads", 5,
                      judge_cache, "tokens"),
        of_generation(
            Way::shared, "sums", "two all-reduces a layer", 5,
            [](Judge& judge, Way) { judge_sums(judge); }, "tokens"),
        of_batching("a12.3-tokens", "each request gets the tokens that it gets alone", 10,
                    "batching", judge_batched_tokens),
        of_batching("a12.3-limits", "no pass is above its limits", 6, "pages",
                    [](Judge& judge) {
                        judge_entry(judge, &Verdict::limits, "no pass has more");
                    }),
        of_batching("a12.3-order", "decodes first, and nobody starves", 6, "batching",
                    [](Judge& judge) {
                        judge_entry(
                            judge, &Verdict::order,
                            "decodes first, then the oldest; the youngest is sent back");
                    }),
        of_batching("a12.3-passes", "as few passes as the course's batcher", 8,
                    "batching", judge_passes),
        of_batching("a12.3-pages", "all pages come back", 4, "pages", judge_pages)};
    all[all.size() - 2].needs = {"a12.3-tokens", "a12.3-limits", "a12.3-order"};
    return all;
}

}  // namespace

Assignment decode_assignment() {
    return {
        "decode",
        "Decoding",
        "Generate tokens with a cache of keys and values, on one device and on several "
        "that share out heads, and plan the passes of many requests.",
        {"decode.hpp", "cache.cpp", "shared.cpp", "batcher.cpp", "adapters.cpp"},
        all_criteria(),
        decode_solutions};
}

}  // namespace lockstep::lessons
