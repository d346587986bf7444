#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/decode/grading/replay.hpp"
#include "lessons/grader/judge.hpp"
#include "src/device/operations/attention.hpp"

namespace lockstep::lessons {

namespace {

using namespace decode;
using Numbers = std::map<std::string, std::int64_t>;

/// Adds prompts, or requests, to the numbers of a task.
void give(Numbers& numbers, const std::vector<Asked>& prompts) {
    numbers["prompts"] = std::ssize(prompts);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        numbers[fmt::format("prompt {}", i)] = prompts[i].prompt;
        numbers[fmt::format("output {}", i)] = prompts[i].output;
        numbers[fmt::format("arrival {}", i)] = prompts[i].arrival;
    }
}

// a12.1 and a12.2: the tokens that follow prompts.

/// A way to generate tokens: on one device, or on several.
struct Way {
    const char* exercise;
    const char* task;
    int ranks;  ///< number of ranks in the large case
};
constexpr Way kAlone{"a12.1", "generate", 1};
constexpr Way kShared{"a12.2", "generate shared", 4};

struct Case {
    std::string name;
    int ranks = 1;
    std::int64_t key_heads = 1;
    std::int64_t of_each = 1;  ///< query heads for each key head
    std::vector<Asked> prompts{};
    Numbers sizes{};  ///< these sizes replace the usual drawn sizes
};

TaskRun given(const Judge& judge, const Way& way, const Case& test_case) {
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return std::pair<const std::string, std::int64_t>(
            what, judge.draw(fmt::format("{}: {}", test_case.name, what), low, high));
    };
    Numbers numbers = test_case.sizes;
    numbers.insert({{"heads", test_case.key_heads * test_case.of_each},
                    {"key heads", test_case.key_heads},
                    {"inner", 12 * draw("inner", 1, 3).second},
                    draw("vocabulary", 23, 37),
                    draw("context", 40, 48),
                    draw("layers", 2, 3),
                    draw("hidden", 13, 20),
                    draw("width", 3, 5),
                    draw("page rows", 3, 5),
                    draw("seed", 1, 1 << 30)});
    give(numbers, test_case.prompts);
    const std::int64_t longest =
        std::ranges::max(test_case.prompts, {}, &Asked::prompt).prompt;
    const std::int64_t most =
        std::ranges::max(test_case.prompts, {}, &Asked::output).output;
    TaskRun run{fmt::format("{}: {} heads, {} of keys, {} prompts of up to {} tokens, "
                            "each followed by up to {}",
                            test_case.name, numbers["heads"], test_case.key_heads,
                            test_case.prompts.size(), longest, most),
                {}};
    run.ranks.assign(static_cast<std::size_t>(test_case.ranks),
                     {way.task, {}, numbers, /*may_download=*/true});
    return run;
}

// The grader's cases, drawn again for each grading.

std::vector<Case> drawn_cases(const Judge& judge, const Way& way) {
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return judge.draw(fmt::format("{}: {}", way.task, what), low, high);
    };
    // One prompt has a single token. The prompt whose tokens end first is not the last in
    // the list, and the longest prompt is not the first.
    const std::vector<Asked> four{{draw("prompt 0", 3, 6), draw("output 0", 6, 9)},
                                  {1, 2},
                                  {draw("prompt 2", 8, 13), draw("output 2", 4, 8)},
                                  {draw("prompt 3", 2, 5), draw("output 3", 7, 10)}};
    const std::int64_t of_each = draw("heads that share keys", 2, 3);
    if (way.ranks > 1)
        return {{"2 ranks", 2, 2 * draw("heads of keys of a rank", 1, 2), of_each, four},
                {"3 ranks", 3, 3, 2, four},
                {"1 rank", 1, 2, 2, four},
                {"4 ranks", 4, 4, of_each, four}};
    // Several mistakes often give the same tokens after one prompt, so this case is last.
    return {
        {"heads share keys", 1, of_each, 2, four},
        {"all heads share keys", 1, 1, draw("heads", 3, 5), four},
        {"each head has keys", 1, 4, 1, {{draw("prompt", 4, 6), draw("output", 6, 8)}}}};
}

/// Returns a run so large that matrices and attention are most of the work. All pages are
/// full, and all ranks send the same number of bytes.
TaskRun large_run(const Judge& judge, const Way& way) {
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return judge.draw(fmt::format("large: {}", what), low, high);
    };
    return given(judge, way,
                 {"large",
                  way.ranks,
                  4,
                  2,
                  {{8 * draw("prompt", 2, 4), 9}, {5, 4}, {13, 12}},
                  {{"vocabulary", draw("vocabulary", 390, 410)},
                   {"context", 64},
                   {"hidden", 4 * draw("hidden", 7, 9)},
                   {"width", 8},
                   {"inner", 4 * draw("inner", 23, 26)},
                   {"page rows", 8}}});
}

// Questions about a run.

using TokensOfRanks = std::vector<std::vector<Tokens>>;

/// Returns the tokens that each rank generated after each prompt.
TokensOfRanks tokens_left(Judge& judge, const TaskRun& run, const TaskResult& result) {
    const HostTensor& right = judge.right(run).ranks[0].tensors.at("tokens");
    TokensOfRanks all;
    for (const RankResult& rank : result.ranks) {
        const HostTensor& left = judge.left(rank, "tokens");
        Judge::form("tokens", left, right.shape(), right.dtype());
        const auto values = left.values<std::int32_t>();
        std::vector<Tokens>& own = all.emplace_back();
        for (auto row = values.begin(); row != values.end(); row += right.shape()[1])
            own.emplace_back(row, std::find(row, row + right.shape()[1], -1));
    }
    return all;
}

/// Returns why tokens are wrong, or `otherwise` if the cause is unknown.
std::string cause_of(Judge& judge, const TaskRun& run, const TokensOfRanks& left,
                     const char* otherwise) {
    std::string mistake = judge.mistake(run, [&](const TaskResult& mistaken) {
        return tokens_left(judge, run, mistaken) == left;
    });
    if (!mistake.empty()) return mistake;
    if (std::ranges::count(left, left[0]) < std::ssize(left))
        return "ranks do not generate the same tokens: each rank must wait for the "
               "complete sums";
    return otherwise;
}

/// Judges whether every rank has generated the right tokens.
void judge_run(Judge& judge, const TaskRun& run, const char* otherwise) {
    const TokensOfRanks left = tokens_left(judge, run, judge.run(run));
    const std::vector<Tokens> right = tokens_left(judge, run, judge.right(run))[0];
    for (std::size_t rank = 0; rank < left.size(); ++rank)
        for (std::size_t i = 0; i < right.size(); ++i) {
            const Tokens& own = left[rank][i];
            if (own == right[i]) continue;
            judge.ask(
                false,
                fmt::format("{}: rank {}: after prompt {}, of {} tokens: {}", run.name,
                            rank, i, run.ranks[0].numbers.at(fmt::format("prompt {}", i)),
                            fmt::join(right[i], " ")),
                own.empty() ? "none" : fmt::format("{}", fmt::join(own, " ")),
                own.size() != right[i].size()
                    ? "each prompt gets exactly Prompt::output tokens"
                    : cause_of(judge, run, left, otherwise));
        }
    judge.ask(true, run.name, "the same tokens");
}

/// Judges whether tokens came by a cache: attention reads the keys and values of a rank's
/// own heads from pages, once for each token.
void ask_way(Judge& judge, const Way& way, const TaskRun& run) {
    judge.moved_as_right(
        run, way.exercise, ops::AttendPages::kName, {10, 50},
        {way.ranks > 1
             ? "a rank attends with its own heads, a / t of them, and with each "
               "token once"
             : "each token attends once: the keys and values of earlier tokens "
               "are on pages of the cache",
         "attention reads keys and values from the pages of a cache: attend_pages"});
}

/// Judges the first tokens. More prompts are added, to tell mistakes apart.
void judge_first(Judge& judge, const Way& way) {
    constexpr int kMore = 6;
    for (Case& drawn : drawn_cases(judge, way)) {
        for (int i = 0; i < kMore; ++i)
            drawn.prompts.push_back({judge.draw(fmt::format("more {}", i), 3, 9)});
        for (Asked& each : drawn.prompts)
            each.output = 1;
        const TaskRun run = given(judge, way, drawn);
        judge_run(judge, run, "");
        ask_way(judge, way, run);
    }
}

/// Explains wrong later tokens; the criterion "first" has judged the first tokens.
constexpr const char* kLater =
    "the first token of each prompt is right, so the first pass is right; the mistake is "
    "in later passes: the position, the pages or the input token";

void judge_tokens(Judge& judge, const Way& way) {
    for (const Case& drawn : drawn_cases(judge, way)) {
        const TaskRun run = given(judge, way, drawn);
        judge_run(judge, run, kLater);
        ask_way(judge, way, run);
        if (way.ranks == 1)
            judge.figures_as_right(
                run, way.exercise,
                {{kFlops, {50, 60}, "tokens that are in the cache are computed again"}});
    }
}

constexpr RankFigure kWork{"each token computed once", "flops",
                           [](const RankReport& rank) { return rank.flops; }};
constexpr RankFigure kCache{
    "keys and values, under a MemoryScope of MemoryCategory::cache", "bytes",
    [](const RankReport& rank) { return rank.memory.peak_of(MemoryCategory::cache); }};
constexpr RankFigure kCalls{"two all-reduces a layer in each pass", "calls",
                            [](const RankReport& rank) {
                                std::int64_t calls = 0;
                                for (const Traffic& traffic : rank.traffic)
                                    calls += traffic.calls;
                                return calls;
                            }};

constexpr AskedFigure kWorkAlone{kWork,
                                 {10, 10},
                                 "some tokens are computed more than once, or logits are "
                                 "computed for rows that need none"};
constexpr AskedFigure kWorkOfRank{
    kWork,
    {10, 10},
    "a rank has a / t heads, g / t heads of keys and c / t columns of the MLP; it "
    "computes logits only for rows after which a token is generated"};
/// 15 % less is allowed: one page of seven or more can be reused when a sequence ends.
constexpr AskedFigure kCacheAlone{kCache,
                                  {15, 0},
                                  "a sequence has pages only for its own tokens, except "
                                  "the last one; keys have g heads, not a"};
constexpr AskedFigure kCacheOfRank{
    kCache, {15, 0}, "a rank stores the keys and values of its own heads, g / t of them"};
constexpr AskedFigure kCallsOfRank{
    kCalls,
    {},
    "keys, values and logits are not sent; all prompts share one pass, and each later "
    "pass has one row of each sequence"};
constexpr AskedFigure kSentByRank{
    kSent, {}, "rows of an earlier pass are computed again"};

using TokensJudge = std::function<void(Judge&, const Way&)>;

/// Returns a function that judges the tokens of the large run, and then these figures.
TokensJudge figures(const std::vector<AskedFigure>& asked) {
    return [=](Judge& judge, const Way& way) {
        const TaskRun run = large_run(judge, way);
        judge.needs(std::string(way.exercise) + "-tokens",
                    [&](Judge& asking) { judge_run(asking, run, ""); });
        judge.figures_as_right(run, way.exercise, asked);
    };
}

/// Returns a criterion about generated tokens; the criterion `needed` must pass first.
Criterion of_tokens(const Way& way, const char* what, const char* title, int points,
                    const TokensJudge& judged, const char* needed = "") {
    const std::string id = std::string(way.exercise) + "-";
    Criterion criterion{id + what, title, points,
                        way.ranks > 1 ? lesson_step("tensor-parallel-block", "block")
                                      : lesson_step("inference", "generate"),
                        [=, &way](Judge& judge) { judged(judge, way); }};
    if (*needed != '\0') criterion.needs = {id + needed};
    return criterion;
}

// a12.3: the passes that a batcher plans.

/// More passes than a batcher needs even if it serves one request after another.
constexpr std::int64_t kPasses = 250;

/// Bounds from which rules and requests are drawn.
struct Mix {
    const char* name;
    Rules rules;  ///< drawn rules differ from these by at most 1
    int requests;
    std::int64_t most_prompt;
    std::int64_t most_output;
    std::int64_t most_apart;  ///< maximum passes between two arrivals
};

/// In the four mixes, requests wait for rows, wait because few may be under way at once,
/// wait for pages (some must free theirs and begin again), or arrive late.
constexpr Mix kMixes[] = {{"long prompts", {8, 4, 64, 4}, 8, 26, 8, 2},
                          {"many at once", {12, 3, 48, 4}, 10, 8, 12, 0},
                          {"few pages", {10, 5, 9, 3}, 9, 9, 14, 1},
                          {"late requests", {6, 3, 10, 4}, 6, 12, 6, 12}};

Batch drawn_batch(const Judge& judge, const Mix& mix) {
    const auto draw = [&](const std::string& what, std::int64_t low, std::int64_t high) {
        return judge.draw(fmt::format("{}: {}", mix.name, what), low, high);
    };
    Batch batch{mix.rules};
    batch.rules.rows += draw("rows", -1, 1);
    batch.rules.sequences += draw("sequences", 0, 1);
    batch.rules.pages += draw("pages", -1, 1);
    batch.rules.page_rows += draw("rows of a page", 0, 1);
    std::int64_t pass = 0;
    for (int i = 0; i < mix.requests; ++i) {
        pass += draw(fmt::format("apart {}", i), 0, mix.most_apart);
        batch.requests.push_back(
            {draw(fmt::format("prompt {}", i), 1, mix.most_prompt),
             draw(fmt::format("output {}", i), 1 + mix.most_output / 2, mix.most_output),
             pass});
    }
    return batch;
}

TaskRun run_of(const char* name, const Batch& batch) {
    const auto& [rows, sequences, pages, page_rows] = batch.rules;
    Numbers numbers{{"rows", rows},
                    {"sequences", sequences},
                    {"pages", pages},
                    {"page rows", page_rows},
                    {"passes", kPasses}};
    give(numbers, batch.requests);
    return {
        fmt::format("{}: {} requests, passes of {} rows and {} sequences, {} pages of {}",
                    name, batch.requests.size(), rows, sequences, pages, page_rows),
        {{"batch", {}, numbers}}};
}

/// The first mistake of each kind in a plan; empty if there is none.
struct Judged : Verdict {
    std::string passes;
    std::string pages;
};

Judged judged(Judge& judge, const Batch& batch, const TaskRun& run) {
    const auto verdict = [&](const TaskResult& result) {
        const auto left = result.ranks.front().values.find("plan");
        const auto plan = left == result.ranks.front().values.end()
                              ? std::nullopt
                              : read_plan(left->second, batch.rules, kPasses);
        if (!plan) throw Judge::No{Mark::failed, "passes", "none", ""};
        return replayed(batch, *plan);
    };
    const TaskResult& result = judge.run(run);
    Judged own{verdict(result), {}, {}};
    const std::int64_t right = verdict(judge.right(run)).last_pass + 1;
    const std::int64_t most = right + right / 20;
    // One request after another is no batching, whatever else is right.
    if (own.tokens.empty() && 2 * (own.last_pass + 1) > 5 * right)
        own.tokens = fmt::format(
            "{} passes, and the course's batcher needs {}: requests share passes",
            own.last_pass + 1, right);
    if (own.last_pass >= most)
        own.passes =
            fmt::format("{} passes; at most {} are allowed", own.last_pass + 1, most);
    const auto free = result.ranks.front().values.find("free pages");
    if (free == result.ranks.front().values.end() || free->second.elements() != 1)
        own.pages = "none is said to be";
    else if (free->second.at(0) != static_cast<double>(batch.rules.pages))
        own.pages = fmt::format("{} of {}", free->second.at(0), batch.rules.pages);
    return own;
}

/// Returns a criterion about one kind of mistake in plans.
Criterion of_plans(const char* id, const char* title, int points, const char* step,
                   std::string Judged::*wrong, const char* asked, const char* said = "") {
    const auto judge_all = [=](Judge& judge) {
        for (const Mix& mix : kMixes) {
            const Batch batch = drawn_batch(judge, mix);
            const TaskRun run = run_of(mix.name, batch);
            const Judged own = judged(judge, batch, run);
            const std::string& found = own.*wrong;
            judge.ask(found.empty(), fmt::format("{}: {}", run.name, asked),
                      found.empty() ? "right" : found, said);
            // After its first wrong token a plan is not judged, so tokens must be right.
            judge.needs("a12.3-tokens", [&](Judge& asking) {
                asking.ask(own.tokens.empty(), "", own.tokens);
            });
        }
    };
    return {id, title, points, lesson_step("inference", step), judge_all};
}

std::vector<Criterion> all_criteria() {
    std::vector<Criterion> all{
        of_tokens(kAlone, "first", "the first token after prompts of unequal lengths", 10,
                  judge_first),
        of_tokens(kAlone, "tokens",
                  "token by token, the same tokens as from whole sequences", 12,
                  judge_tokens, "first"),
        of_tokens(kAlone, "work", "each token is computed once", 8, figures({kWorkAlone}),
                  "tokens"),
        of_tokens(kAlone, "cache", "the cache has the pages that tokens take", 6,
                  figures({kCacheAlone}), "first"),
        of_tokens(kShared, "first", "every rank knows the first token after each prompt",
                  8, judge_first),
        of_tokens(kShared, "tokens", "every rank has one device's tokens", 6,
                  judge_tokens, "first"),
        of_tokens(kShared, "work", "a rank computes its own heads and columns", 6,
                  figures({kWorkOfRank}), "tokens"),
        of_tokens(kShared, "cache", "a rank stores the keys of its own heads", 5,
                  figures({kCacheOfRank}), "first"),
        of_tokens(kShared, "sums", "two all-reduces a layer", 5,
                  figures({kCallsOfRank, kSentByRank}), "tokens"),
        of_plans("a12.3-tokens",
                 "each request gets the same tokens as when it runs alone", 10,
                 "batching", &Judged::tokens,
                 "each row finds the keys of its own sequence, and each request gets all "
                 "of its tokens"),
        of_plans("a12.3-limits", "no pass is above its limits", 6, "pages",
                 &Judged::limits, "no pass has more"),
        of_plans("a12.3-order", "decodes go first, and no request starves", 6, "batching",
                 &Judged::order,
                 "decodes first, then the oldest; the youngest is sent back"),
        of_plans("a12.3-passes", "as few passes as the course's batcher", 8, "batching",
                 &Judged::passes, "5 % more passes than the course's batcher, at most",
                 "a request joins as soon as rows, a place and pages for its present "
                 "tokens are free; prompts get all rows that decodes do not use; reserve "
                 "nothing for later tokens"),
        of_plans("a12.3-pages", "all pages come back", 4, "pages", &Judged::pages,
                 "all pages are free in the end",
                 "pages come back when a request has its last token, and when it is sent "
                 "back: once, and all of them")};
    all[all.size() - 2].needs = {"a12.3-tokens", "a12.3-limits", "a12.3-order"};
    return all;
}

}  // namespace

Assignment decode_assignment() {
    return {"decode",
            "Decoding",
            "Generate tokens with a cache of keys and values, on one device and on "
            "several that shard the heads, and plan the passes of many requests.",
            {"decode.hpp", "cache.cpp", "shared.cpp", "batcher.cpp", "adapters.cpp"},
            all_criteria(),
            decode_solutions};
}

}  // namespace lockstep::lessons
