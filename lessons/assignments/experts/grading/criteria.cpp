#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/suspects.hpp"
#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

namespace {

// a9.1: choices.

TaskRun choosing(const Judge& judge, std::int64_t tokens, std::int64_t experts,
                 std::int64_t chosen, bool ties) {
    const std::string name =
        fmt::format("{} tokens to {} of {} experts{}", tokens, chosen, experts,
                    ties ? ", some of equal logits" : "");
    HostTensor logits = judge.normal(name, {tokens, experts});
    for (std::int64_t i = 0; ties && i < logits.elements(); ++i)
        logits.set(i, std::round(logits.at(i)));
    RankTask task{"choose", {{"logits", {logits}}}, {{"chosen", chosen}}};
    task.may_download = true;
    return {name, {task}};
}

/// Returns runs of choose(). The first run has no ties.
std::vector<TaskRun> choices(const Judge& judge) {
    return {choosing(judge, judge.draw("chosen by few", 6, 9), 5, 2, false),
            choosing(judge, judge.draw("chosen by more", 8, 12),
                     judge.draw("to choose from", 6, 7), 3, true),
            choosing(judge, judge.draw("chosen by all", 3, 5), 4, 4, true),
            choosing(judge, judge.draw("chosen by one each", 4, 6), 8, 1, true)};
}

void judge_choice(Judge& judge) {
    for (const TaskRun& run : choices(judge)) {
        judge.as_right(run);
        judge.figures_as_right(
            run, "a9.1",
            {{kFlops, {50, kAnyMore}, "", "weights are computed on the device"}});
    }
}

// The grader's cases of a layer, drawn again for each grading.

/// The number of tokens on each rank.
using Counts = std::vector<std::int64_t>;

/// The sizes of a layer, and the number of tokens on each rank.
struct Sizes {
    Counts tokens;                 ///< by rank
    std::int64_t own_experts = 1;  ///< number of experts on each rank
    std::int64_t chosen = 1;
    std::int64_t hidden = 3;
    std::int64_t inner = 4;
    std::int64_t capacity = 0;
    bool crowded = false;  ///< whether expert 0 is the first choice of all tokens

    std::int64_t ranks() const { return std::ssize(tokens); }
    std::int64_t experts() const { return ranks() * own_experts; }
    std::int64_t all_tokens() const {
        return std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
    }
    std::string name() const {
        return fmt::format(
            "{} rank{}, {} tokens of {} columns to {} of {} experts{}{}", ranks(),
            ranks() == 1 ? "" : "s", fmt::join(tokens, " + "), hidden, chosen, experts(),
            crowded ? ", all to expert 0" : "",
            capacity == 0 ? "" : fmt::format(" that take {} each", capacity));
    }
};

/// Draws the number of tokens on each rank; 0 for the rank `idle`, if there is one.
Counts draw_tokens(const Judge& judge, const std::string& name, std::int64_t ranks,
                   std::int64_t idle = -1) {
    Counts tokens;
    for (std::int64_t rank = 0; rank < ranks; ++rank)
        tokens.push_back(
            rank == idle ? 0
                         : judge.draw(fmt::format("{}: tokens {}", name, rank), 3, 7));
    return tokens;
}

/// Cases with one expert on each rank: a plain case, which is first; a single choice; a
/// rank without tokens; as many choices as experts; all tokens to one expert; and more
/// ranks.
std::vector<Sizes> lone_cases(const Judge& judge) {
    return {{draw_tokens(judge, "plain", 3), 1, 2},
            {draw_tokens(judge, "one choice", 2), 1, 1},
            {draw_tokens(judge, "idle", 3, judge.draw("idle rank", 0, 2)), 1, 2, 4, 5},
            {draw_tokens(judge, "all experts", 4), 1, 4},
            {draw_tokens(judge, "to one of few", 3), 1, 2, 3, 4, 0, true},
            {draw_tokens(judge, "more ranks", judge.draw("ranks", 5, 6)), 1, 2, 5, 3}};
}

/// Cases with several experts on each rank: one rank; two ranks; a rank without tokens;
/// all tokens to one expert; and more choices.
std::vector<Sizes> shared_cases(const Judge& judge) {
    return {{draw_tokens(judge, "alone", 1), 4, 2},
            {draw_tokens(judge, "two", 2), 3, 2, 4, 5},
            {draw_tokens(judge, "idle, several", 3, judge.draw("idle of 3", 0, 2)), 2, 2,
             4, 5},
            {draw_tokens(judge, "to one", 3), 2, 2, 3, 4, 0, true},
            {draw_tokens(judge, "more", 4), 3, 3, 5, 3}};
}

/// The cases above, with a capacity that is too small for all copies. A first case tells
/// all mistakes apart: in it, only one rank has more copies than an expert accepts. A
/// last case has a capacity that is just enough.
std::vector<Sizes> full_cases(const Judge& judge) {
    std::vector<Sizes> full{
        {{judge.draw("more than there is room", 7, 9), 2, 3}, 1, 2, 3, 4, 4, true}};
    for (const auto& cases : {lone_cases(judge), shared_cases(judge)})
        for (Sizes sizes : cases) {
            const std::int64_t copies = sizes.all_tokens() * sizes.chosen;
            sizes.capacity = std::max<std::int64_t>(1, copies / sizes.experts() - 1);
            full.push_back(sizes);
        }
    Sizes enough{draw_tokens(judge, "just enough", 3), 2, 2, 3, 4, 0, true};
    enough.capacity = enough.all_tokens();
    full.push_back(enough);
    return full;
}

/// A case with many columns: counts have far fewer bytes than copies, and experts do
/// almost all of the work.
Sizes wide_case(const Judge& judge, std::int64_t own_experts) {
    const std::int64_t more = judge.draw("wide: tokens", 0, 3);
    return {{3 + more, 16 - more, 5 + more, 11 - more}, own_experts, 2, 240, 160};
}

/// The wide case, with room for fewer copies than arrive.
Sizes wide_full_case(const Judge& judge) {
    Sizes sizes = wide_case(judge, 1);
    sizes.capacity = sizes.all_tokens() * sizes.chosen / sizes.experts() *
                     judge.draw("room", 55, 75) / 100;
    return sizes;
}

/// Returns a run of "forward" or of "pass". All ranks get the same gate; each rank gets
/// its own experts and tokens.
TaskRun given(const Judge& judge, const std::string& task, const Sizes& sizes) {
    const auto draw = [&](const std::string& what, const Shape& shape) {
        return judge.normal(fmt::format("{}: {}", sizes.name(), what), shape);
    };
    HostTensor gate = draw("gate", {sizes.experts(), sizes.hidden});
    // The first column of x is 1, so expert 0's logit is far above all others.
    if (sizes.crowded) gate.set(0, 100);
    TaskRun run{sizes.name(), {}};
    for (std::int64_t rank = 0; rank < sizes.ranks(); ++rank) {
        RankTask& own = run.ranks.emplace_back(RankTask{task, {}, {}, true});
        own.numbers = {{"hidden", sizes.hidden},     {"inner", sizes.inner},
                       {"experts", sizes.experts()}, {"own experts", sizes.own_experts},
                       {"chosen", sizes.chosen},     {"capacity", sizes.capacity}};
        const Shape shape{sizes.tokens[static_cast<std::size_t>(rank)], sizes.hidden};
        HostTensor x = draw(fmt::format("x {}", rank), shape);
        for (std::int64_t t = 0; sizes.crowded && t < shape[0]; ++t)
            x.set(t * sizes.hidden, 1);
        own.tensors = {{"x", {x}}, {"gate.weight", {gate, MemoryCategory::parameters}}};
        if (task == "pass") own.tensors["dy"] = {draw(fmt::format("dy {}", rank), shape)};
        const auto give = [&](const std::string& name, const Shape& matrix) {
            own.tensors[name] = {draw(fmt::format("{} of rank {}", name, rank), matrix),
                                 MemoryCategory::parameters};
        };
        for (std::int64_t e = 0; e < sizes.own_experts; ++e) {
            give(fmt::format("expert{}.wide.weight", e), {sizes.inner, sizes.hidden});
            give(fmt::format("expert{}.narrow.weight", e), {sizes.hidden, sizes.inner});
        }
    }
    return run;
}

// Questions about a run.

void ask_y(Judge& judge, const TaskRun& run) {
    judge.as_right(run, {{"y"}});
}

/// Judges dx and the experts' gradients.
void ask_gradients(Judge& judge, const TaskRun& run) {
    AskedValues asked{{"dx"}};
    for (const auto& [name, given] : run.ranks[0].tensors)
        if (name.starts_with("expert")) asked.tensors.push_back(name + "'s gradient");
    judge.as_right(run, asked);
}

/// Judges the gate's gradient: every rank must have the sum over the ranks.
void ask_gate(Judge& judge, const TaskRun& run) {
    AskedValues asked{{"gate.weight's gradient"}};
    asked.cause = suspected_sums(judge, run);
    judge.as_right(run, asked);
}

constexpr RankFigure kTravelled{
    "sent by all_to_all_v", "bytes", [](const RankReport& rank) {
        return rank.bytes_sent_by("send") + rank.bytes_sent_by("all_to_all");
    }};
constexpr RankFigure kSentToAll{
    "sent by other collectives", "bytes",
    [](const RankReport& rank) { return rank.bytes_sent() - kTravelled.value(rank); }};

/// Judges whether values came by the way that is asked for: copies travel to the ranks of
/// their experts, and devices compute what experts make of them. Another criterion judges
/// bytes exactly.
void ask_travel(Judge& judge, const TaskRun& run) {
    judge.figures_as_right(
        run, judge.exercise(),
        {{kTravelled,
          {5, kAnyMore},
          "",
          "copies travel to the ranks of their experts, and back, by all_to_all_v"},
         {kFlops, {50, kAnyMore}, "", "experts compute on the device"}});
}

/// Judges, in addition, whether copies travel by no other way. Counts may travel by any
/// verb.
void ask_way(Judge& judge, const TaskRun& run) {
    ask_travel(judge, run);
    const auto experts = run.ranks.front().numbers.at("experts");
    const auto counts = experts * std::ssize(run.ranks) * 4 * bytes_of(DType::i32);
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        const std::int64_t most =
            kSentToAll.value(judge.right(run).report.ranks[rank]) + counts;
        const std::int64_t sent = kSentToAll.value(judge.run(run).report.ranks[rank]);
        judge.ask(sent <= most,
                  fmt::format("{}: {}: rank {}: {}: at most {} bytes", judge.exercise(),
                              run.name, rank, kSentToAll.name, most),
                  fmt::format("{} bytes", sent),
                  "copies and what experts make of them travel by all_to_all_v alone; "
                  "all_reduce is only for the gate's gradients");
    }
}

/// Returns a run whose values must be right; criterion `id` reports wrong values.
TaskRun right_run(const Judge& judge, const std::string& id, const std::string& task,
                  const Sizes& sizes) {
    TaskRun run = given(judge, task, sizes);
    judge.needs(id, [&](Judge& asking) {
        (task == "pass" ? ask_gradients : ask_y)(asking, run);
    });
    return run;
}

/// Requires a right forward in the first case: if it is wrong, everything else is, too.
void needs_forward(const Judge& judge) {
    right_run(judge, "a9.2-values", "forward", lone_cases(judge).front());
}

void judge_forward(Judge& judge, const std::vector<Sizes>& cases) {
    for (const Sizes& sizes : cases) {
        const TaskRun run = given(judge, "forward", sizes);
        ask_y(judge, run);
        judge.as_right(run, {.tensors = {"x afterwards"}, .bound = 0});
        ask_way(judge, run);
    }
}

void judge_lone_forward(Judge& judge) {
    judge_forward(judge, lone_cases(judge));
}

void judge_shared_forward(Judge& judge) {
    needs_forward(judge);
    judge_forward(judge, shared_cases(judge));
}

/// Does not judge y, because a9.2 does.
void judge_backward(Judge& judge) {
    judge.needs("a9.2-values", [](Judge& asking) {
        asking.run(given(asking, "forward", lone_cases(asking).front()));
    });
    for (const auto& cases : {lone_cases(judge), shared_cases(judge)})
        for (const Sizes& sizes : cases) {
            const TaskRun run = given(judge, "pass", sizes);
            ask_gradients(judge, run);
            judge.as_right(run,
                           {.tensors = {"x afterwards", "dy afterwards"}, .bound = 0});
            ask_way(judge, run);
        }
}

void judge_gate(Judge& judge) {
    judge.needs("a9.3-values", [](Judge& asking) {
        asking.run(given(asking, "pass", lone_cases(asking).front()));
    });
    for (const Sizes& sizes : lone_cases(judge)) {
        const TaskRun run = given(judge, "pass", sizes);
        ask_gate(judge, run);
        ask_travel(judge, run);
    }
}

/// Returns whether a known mistake was made when the gate's gradients were summed.
bool gate_sum_is_wrong(Judge& judge, const TaskRun& run) {
    const std::string name = "gate.weight's gradient";
    OfRanks left;
    for (const RankResult& rank : judge.run(run).ranks)
        left.push_back(judge.left(rank, name));
    return !suspected_sums(judge, run)(name, left).empty();
}

/// If the sum of the gate's gradients is already wrong without a capacity, a9.3 reports
/// this mistake, and judge_capacity() does not judge the sum.
void judge_capacity(Judge& judge) {
    needs_forward(judge);
    const TaskRun lone =
        right_run(judge, "a9.3-values", "pass", lone_cases(judge).front());
    const bool asks_gate = !gate_sum_is_wrong(judge, lone);
    for (const Sizes& sizes : full_cases(judge)) {
        const TaskRun run = given(judge, "pass", sizes);
        ask_y(judge, run);
        ask_gradients(judge, run);
        if (asks_gate) ask_gate(judge, run);
    }
    for (const Sizes& sizes : full_cases(judge))
        ask_way(judge, given(judge, "pass", sizes));
}

constexpr RankFigure kSummed{"sent by all_reduce", "bytes", [](const RankReport& rank) {
                                 return rank.bytes_sent_by("all_reduce");
                             }};
constexpr RankFigure kExchanged{
    "sent by other calls", "bytes", [](const RankReport& rank) {
        return rank.bytes_sent() - rank.bytes_sent_by("all_reduce");
    }};

/// Judges bytes and messages: each copy is sent once in each direction. Counts are less
/// than 1/100 of the bytes, but may need `more_messages` per cent more messages.
void judge_bytes(Judge& judge, const std::string& exercise, const std::string& task,
                 const Sizes& sizes, int more_messages) {
    const TaskRun run = right_run(judge, exercise + "-values", task, sizes);
    judge.figures_as_right(
        run, exercise,
        {{kSummed, {100, 0}, "all_reduce is only for the gate's gradients"},
         {kExchanged, {1, 1}},
         {kMessages, {100, more_messages}}});
}

void judge_forward_bytes(Judge& judge) {
    judge_bytes(judge, "a9.2", "forward", wide_case(judge, 1), 100);
}

void judge_backward_bytes(Judge& judge) {
    judge_bytes(judge, "a9.3", "pass", wide_case(judge, 1), 14);
}

void judge_dropped_bytes(Judge& judge) {
    judge_bytes(judge, "a9.4", "pass", wide_full_case(judge), 0);
}

/// A rank computes the rows that arrived for its experts, and the gate for its tokens.
/// Everything else that the reference computes is less than a hundredth of this work.
void judge_work(Judge& judge) {
    constexpr RankFigure kFlops{"its experts' rows", "flops",
                                [](const RankReport& rank) { return rank.flops; }};
    const TaskRun run = right_run(judge, "a9.2-experts", "forward", wide_case(judge, 2));
    judge.figures_as_right(run, "a9.2", {{kFlops, {1, 10}}});
}

/// Judges a layer. If choose() computes the softmax of all logits, only a9.1 reports it:
/// then the layer is compared with a reference that has the same mistake.
void judge_layer(Judge& judge, void (*judge_it)(Judge&)) {
    const std::vector<Solution> solutions = experts_solutions();
    const Solution& by_all = *std::ranges::find(
        solutions, "weights are the softmax of all logits", &Solution::title);
    Judge other = judge;
    other.compare_with(by_all);
    if (other.meets([](Judge& asking) {
            asking.as_right(choices(asking).front(), {{"weights"}});
        }))
        judge.compare_with(by_all);
    judge_it(judge);
}

Criterion of_layer(const std::string& id, const std::string& title, int points,
                   const char* step, void (*judge)(Judge&)) {
    return {id, title, points, lesson_step("experts", step),
            [=](Judge& asking) { judge_layer(asking, judge); }};
}

}  // namespace

Assignment experts_assignment() {
    return {
        "experts",
        "Experts",
        "A layer of experts on several devices: choose experts, send each token to its "
        "experts and the results back, forward and backward, and drop the tokens for "
        "which an expert has no room.",
        {"experts.hpp", "experts.cpp", "adapters.cpp"},
        {{"a9.1-values", "choose gives the k best experts and their weights", 10,
          lesson_step("experts", "gate"), judge_choice},
         of_layer("a9.2-values", "forward is as on one device, one expert on each rank",
                  15, "dispatch", judge_lone_forward),
         of_layer("a9.2-experts", "the same with several experts on each rank", 10,
                  "dispatch", judge_shared_forward),
         of_layer("a9.2-bytes", "forward sends each copy once each way", 10, "dispatch",
                  judge_forward_bytes),
         of_layer("a9.2-work", "experts compute the rows that came for them", 5,
                  "waiting", judge_work),
         of_layer("a9.3-values", "backward gives dx and the experts' gradients", 15,
                  "dispatch", judge_backward),
         of_layer("a9.3-gate", "every rank has the sum of the gate's gradients", 10,
                  "dispatch", judge_gate),
         of_layer("a9.3-bytes", "backward sends each copy's gradient once each way", 10,
                  "dispatch", judge_backward_bytes),
         of_layer("a9.4-values", "a full expert takes the first copies, and no others",
                  10, "capacity", judge_capacity),
         of_layer("a9.4-bytes", "what is dropped is not sent", 5, "capacity",
                  judge_dropped_bytes)},
        experts_solutions};
}

}  // namespace lockstep::lessons
