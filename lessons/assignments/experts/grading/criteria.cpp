#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/suspects.hpp"
#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

namespace {

// a9.1: choices.

struct Logits {
    std::int64_t tokens, experts, chosen;
    bool ties;

    std::string name() const {
        return fmt::format("{} tokens to {} of {} experts{}", tokens, chosen, experts,
                           ties ? ", some of equal logits" : "");
    }
};

/// The first has no ties.
std::vector<Logits> all_logits(const Judge& judge) {
    const auto draw = [&](const char* name, std::int64_t low, std::int64_t high) {
        return judge.draw(name, low, high);
    };
    return {{draw("chosen by few", 6, 9), 5, 2, false},
            {draw("chosen by more", 8, 12), draw("to choose from", 6, 7), 3, true},
            {draw("chosen by all", 3, 5), 4, 4, true},
            {draw("chosen by one each", 4, 6), 8, 1, true}};
}

HostTensor logits_of(const Judge& judge, const Logits& sizes) {
    HostTensor logits = judge.normal(sizes.name(), {sizes.tokens, sizes.experts});
    for (std::int64_t i = 0; sizes.ties && i < logits.elements(); ++i)
        logits.set(i, std::round(logits.at(i)));
    return logits;
}

TaskRun choosing(const Judge& judge, const Logits& sizes) {
    return {sizes.name(),
            {{"choose",
              {{"logits", {logits_of(judge, sizes)}}},
              {{"chosen", sizes.chosen}},
              /*may_download=*/true}}};
}

void judge_choice(Judge& judge) {
    for (const Logits& sizes : all_logits(judge))
        judge.as_right(choosing(judge, sizes));
}

/// Returns the reference with weights that are the softmax of all logits.
const Solution& weighing_by_all() {
    static const std::vector<Solution> all = experts_solutions();
    return *std::ranges::find(all, "weights are the softmax of all logits",
                              &Solution::title);
}

/// Returns whether the student's choose takes the softmax of all logits. That is said of
/// a9.1, and costs no more.
bool weighs_by_all(Judge& judge) {
    const TaskRun run = choosing(judge, all_logits(judge).front());
    const TaskResult& student = judge.tried(run);
    SolutionWork mistaken(weighing_by_all(), sim::CheckLevel::cheap);
    const auto weights = [](const TaskResult& result) {
        const auto& tensors = result.ranks.front().tensors;
        const auto found = tensors.find("weights");
        return found == tensors.end() ? HostTensor() : found->second;
    };
    return !student.trouble &&
           Judge::are_close(weights(student), weights(mistaken.run(run)));
}

// The grader's cases of a layer; drawn anew for each grading.

/// Counts tokens of each rank.
using Counts = std::vector<std::int64_t>;

/// The sizes of a layer, and the tokens of each rank.
struct Sizes {
    Counts tokens;                 ///< of each rank
    std::int64_t own_experts = 1;  ///< of each rank
    std::int64_t chosen = 1;
    std::int64_t hidden = 3;
    std::int64_t inner = 4;
    std::int64_t capacity = 0;
    bool crowded = false;  ///< all tokens' first choice is expert 0

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

Counts draw_tokens(const Judge& judge, const std::string& name, std::int64_t ranks,
                   std::int64_t low, std::int64_t high) {
    Counts tokens;
    for (std::int64_t rank = 0; rank < ranks; ++rank)
        tokens.push_back(judge.draw(fmt::format("{}: tokens {}", name, rank), low, high));
    return tokens;
}

/// One expert on each rank: nothing special, which comes first, and a single choice, a
/// rank without tokens, as many choices as experts, all tokens to one expert, and more
/// ranks.
std::vector<Sizes> lone_cases(const Judge& judge) {
    const std::int64_t each = judge.draw("each of two", 3, 6);
    Counts uneven = draw_tokens(judge, "uneven", 3, 2, 5);
    uneven[static_cast<std::size_t>(judge.draw("without tokens", 0, 2))] = 0;
    return {
        {draw_tokens(judge, "plain", 3, 3, 5), 1, 2},
        {{each, each}, 1, 1},
        {uneven, 1, 2, 4, 5},
        {draw_tokens(judge, "all experts", 4, 1, 4), 1, 4},
        {draw_tokens(judge, "to one of few", 3, 3, 5), 1, 2, 3, 4, 0, true},
        {draw_tokens(judge, "more ranks", judge.draw("ranks", 5, 6), 1, 6), 1, 2, 5, 3}};
}

/// Several experts on each rank: all on one rank, two, three, and all tokens to one.
std::vector<Sizes> shared_cases(const Judge& judge) {
    Counts uneven = draw_tokens(judge, "uneven, several", 3, 3, 6);
    uneven[static_cast<std::size_t>(judge.draw("without tokens, several", 0, 2))] = 0;
    return {
        {draw_tokens(judge, "alone", 1, 5, 8), 4, 2},
        {draw_tokens(judge, "two", 2, 5, 8), 3, 2, 4, 5},
        {uneven, 2, 2, 4, 5},
        {draw_tokens(judge, "to one", 3, 3, 5), 2, 2, 3, 4, 0, true},
        {draw_tokens(judge, "more", 4, 2, 6), judge.draw("own experts", 2, 3), 3, 5, 3}};
}

/// Those cases with experts that cannot take all; before them, one in which no two
/// mistakes keep the same copies: one rank alone has more than an expert takes; behind
/// them, one whose capacity is just enough.
std::vector<Sizes> full_cases(const Judge& judge) {
    std::vector<Sizes> full{
        {{judge.draw("more than there is room", 7, 9), 2, 3}, 1, 2, 3, 4, 4, true}};
    for (const auto& cases : {lone_cases(judge), shared_cases(judge)})
        for (Sizes sizes : cases) {
            const std::int64_t copies = sizes.all_tokens() * sizes.chosen;
            sizes.capacity = std::max<std::int64_t>(1, copies / sizes.experts() - 1);
            full.push_back(sizes);
        }
    Sizes enough{draw_tokens(judge, "just enough", 3, 3, 5), 2, 2, 3, 4, 0, true};
    enough.capacity = enough.all_tokens();
    full.push_back(enough);
    return full;
}

/// So wide that a copy has more bytes than all counts, and experts have all the work.
Sizes wide_case(const Judge& judge, std::int64_t own_experts) {
    const std::int64_t more = judge.draw("wide: tokens", 0, 3);
    return {{3 + more, 16 - more, 5 + more, 11 - more}, own_experts, 2, 24, 160};
}

/// With room for fewer copies than come.
Sizes wide_full_case(const Judge& judge) {
    Sizes sizes = wide_case(judge, 1);
    sizes.capacity = sizes.all_tokens() * sizes.chosen / sizes.experts() *
                     judge.draw("room", 55, 75) / 100;
    return sizes;
}

/// Returns a run of "forward" or of "pass": all ranks are given the gate, each its own
/// experts and tokens.
TaskRun given(const Judge& judge, const std::string& task, const Sizes& sizes) {
    const auto draw = [&](const std::string& what, const Shape& shape) {
        return judge.normal(fmt::format("{}: {}", sizes.name(), what), shape);
    };
    HostTensor gate = draw("gate", {sizes.experts(), sizes.hidden});
    // The first column is 1, and expert 0's logit is far above all others.
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
        own.tensors = {{"x", {x}}, {"gate", {gate, MemoryCategory::parameters}}};
        if (task == "pass") own.tensors["dy"] = {draw(fmt::format("dy {}", rank), shape)};
        for (std::int64_t e = 0; e < sizes.own_experts; ++e) {
            const auto give = [&](const char* what, const Shape& matrix) {
                own.tensors[fmt::format("expert{} {}", e, what)] = {
                    draw(fmt::format("{} {}", what, rank * sizes.own_experts + e),
                         matrix),
                    MemoryCategory::parameters};
            };
            give("wide", {sizes.inner, sizes.hidden});
            give("narrow", {sizes.hidden, sizes.inner});
        }
    }
    return run;
}

// What is asked of a run.

constexpr const char* kGate = "gate's gradient";

/// Returns what a run of a layer should leave: if the student weighs by all logits, what
/// a reference leaves that does, too.
TaskResult expected(Judge& judge, const TaskRun& run) {
    if (!weighs_by_all(judge)) return judge.right(run);
    return SolutionWork(weighing_by_all(), sim::CheckLevel::cheap).run(run);
}

/// As Judge::as_right(), with what is expected().
void as_right(Judge& judge, const TaskRun& run, const AskedValues& asked) {
    if (!weighs_by_all(judge)) return judge.as_right(run, asked);
    const TaskResult right = expected(judge, run);
    for (const std::string& name : asked.tensors)
        for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
            try {
                judge.close(fmt::format("{}: rank {}: {}", run.name, rank, name),
                            judge.left(judge.run(run).ranks[rank], name),
                            right.ranks[rank].tensors.at(name));
            } catch (Judge::No& no) {
                if (asked.cause) no.explain(asked.cause(name, {}));
                throw;
            }
}

void ask_y(Judge& judge, const TaskRun& run) {
    as_right(judge, run, {{"y"}});
}

/// Asks for dx, and for the gradients of experts.
void ask_gradients(Judge& judge, const TaskRun& run) {
    AskedValues asked{{"dx"}};
    for (std::int64_t e = 0; e < run.ranks[0].numbers.at("own experts"); ++e)
        for (const char* what : {"wide", "narrow"})
            asked.tensors.push_back(fmt::format("expert{} {}'s gradient", e, what));
    as_right(judge, run, asked);
}

/// Returns what is known to be wrong with the sum over the ranks of the gate's gradients.
std::string cause_of_gate(Judge& judge, const TaskRun& run) {
    OfRanks left;
    for (const RankResult& rank : judge.run(run).ranks)
        left.push_back(judge.left(rank, kGate));
    return suspected_sum(left, expected(judge, run).ranks[0].tensors.at(kGate));
}

/// Asks for the gate's gradient, whole on every rank.
void ask_gate(Judge& judge, const TaskRun& run) {
    AskedValues asked{{kGate}};
    asked.cause = [&](const std::string&, const OfRanks&) {
        return cause_of_gate(judge, run);
    };
    as_right(judge, run, asked);
}

/// Asks that all that was given is as it was.
void ask_given(Judge& judge, const TaskRun& run) {
    AskedValues asked{{"given x"}};
    if (run.ranks[0].task == "pass") asked.tensors.push_back("given dy");
    asked.called = [](const std::string& tensor) {
        return tensor.substr(6) + " afterwards";
    };
    asked.bound = 0;
    judge.as_right(run, asked);
}

void judge_forward(Judge& judge, const std::vector<Sizes>& cases) {
    for (const Sizes& sizes : cases) {
        const TaskRun run = given(judge, "forward", sizes);
        ask_y(judge, run);
        ask_given(judge, run);
    }
}

/// Asks for a right forward of a few ranks with an expert each, without which nothing
/// else can be.
void needs_forward(const Judge& judge) {
    judge.needs("a9.2-values", [](Judge& asking) {
        judge_forward(asking, {lone_cases(asking).front()});
    });
}

void judge_lone_forward(Judge& judge) {
    judge_forward(judge, lone_cases(judge));
}

void judge_shared_forward(Judge& judge) {
    needs_forward(judge);
    judge_forward(judge, shared_cases(judge));
}

/// y is not asked for: a9.2 does.
void judge_backward(Judge& judge) {
    judge.needs("a9.2-values", [](Judge& asking) {
        asking.run(given(asking, "forward", lone_cases(asking).front()));
    });
    for (const auto& cases : {lone_cases(judge), shared_cases(judge)})
        for (const Sizes& sizes : cases) {
            const TaskRun run = given(judge, "pass", sizes);
            ask_gradients(judge, run);
            ask_given(judge, run);
        }
}

void judge_gate(Judge& judge) {
    judge.needs("a9.3-values", [](Judge& asking) {
        asking.run(given(asking, "pass", lone_cases(asking).front()));
    });
    for (const Sizes& sizes : lone_cases(judge))
        ask_gate(judge, given(judge, "pass", sizes));
}

/// The gate's gradients may be each rank's own here: a9.3 asks for their sum.
void judge_capacity(Judge& judge) {
    needs_forward(judge);
    judge.needs("a9.3-values", [](Judge& asking) {
        ask_gradients(asking, given(asking, "pass", lone_cases(asking).front()));
    });
    for (const Sizes& sizes : full_cases(judge)) {
        const TaskRun run = given(judge, "pass", sizes);
        ask_y(judge, run);
        ask_gradients(judge, run);
        if (cause_of_gate(judge, run).empty()) ask_gate(judge, run);
    }
}

/// Returns a run for what it costs; if it is not right, `id` says so.
TaskRun right_run(const Judge& judge, const std::string& id, const std::string& task,
                  const Sizes& sizes) {
    TaskRun run = given(judge, task, sizes);
    judge.needs(id, [&](Judge& asking) {
        (task == "pass" ? ask_gradients : ask_y)(asking, run);
    });
    return run;
}

/// Each copy crosses once each way; beside them there are counts: an all-to-all of E, and
/// an all-gather of as many, are the most. The sum of the gate's gradients counts apart,
/// by all_reduce, and is all that goes so.
void judge_bytes(Judge& judge, const std::string& id, const std::string& task,
                 const Sizes& sizes) {
    const TaskRun run = right_run(judge, id, task, sizes);
    const std::int64_t others = sizes.ranks() - 1;
    const std::int64_t counts =
        4 * sizes.experts() * others + 4 * sizes.experts() * others / sizes.ranks();
    // Two exchanges of counts, and the sum of the gate's gradients, beside the ways.
    const std::int64_t most = (task == "pass" ? 8 : 6) * others;
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        const RankReport& left = judge.run(run).report.ranks[rank];
        const RankReport& right = judge.right(run).report.ranks[rank];
        const std::int64_t copies = right.bytes_sent_by("send");
        const std::int64_t gate = right.bytes_sent_by("all_reduce");
        const std::int64_t reduced = left.bytes_sent_by("all_reduce");
        const std::int64_t sent = left.bytes_sent() - std::min(reduced, gate);
        judge.ask(sent >= copies && sent <= copies + counts,
                  fmt::format("{}: rank {}: {} bytes of copies sent, and at most {} of "
                              "counts",
                              run.name, rank, copies, counts),
                  fmt::format("{} bytes", sent),
                  reduced > gate ? fmt::format("{} bytes go by all_reduce, which is for "
                                               "the gate's gradients alone: {} bytes",
                                               reduced, gate)
                                 : "");
        judge.ask(left.messages_sent() <= most,
                  fmt::format("{}: rank {}: one message each way to each other rank, and "
                              "those of counts and the gate's gradients: at most {}",
                              run.name, rank, most),
                  fmt::format("{} messages", left.messages_sent()));
    }
}

/// A rank computes the rows that came for its experts, and its own tokens' gate. What
/// else the reference computes is less than a hundredth.
void judge_work(Judge& judge) {
    const TaskRun run = right_run(judge, "a9.2-experts", "forward", wide_case(judge, 2));
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
        judge.figure_as_right(
            run, fmt::format("{}: rank {}: its experts' rows", run.name, rank), "flops",
            [=](const RunReport& report) { return report.ranks[rank].flops; }, {1, 10});
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    const char* step, std::function<void(Judge&)> judge) {
    return {id, title, points, lesson_step("experts", step), std::move(judge)};
}

}  // namespace

Assignment experts_assignment() {
    return {
        "experts",
        "Experts",
        "A layer of experts on several devices: choose, send each token to its experts "
        "and what they make of it back, forward and backward, and drop what an expert "
        "has no room for.",
        {"experts.hpp", "experts.cpp", "adapters.cpp"},
        {criterion("a9.1-values", "choose gives the k best experts and their weights", 10,
                   "gate", judge_choice),
         criterion("a9.2-values", "forward is the layer on one device, an expert a rank",
                   15, "dispatch", judge_lone_forward),
         criterion("a9.2-experts", "the same with several experts on each rank", 10,
                   "dispatch", judge_shared_forward),
         criterion("a9.2-bytes", "forward sends each copy once each way", 10, "dispatch",
                   [](Judge& judge) {
                       judge_bytes(judge, "a9.2-values", "forward", wide_case(judge, 1));
                   }),
         criterion("a9.2-work", "experts compute the rows that came for them", 5,
                   "waiting", judge_work),
         criterion("a9.3-values", "backward gives dx and the experts' gradients", 15,
                   "dispatch", judge_backward),
         criterion("a9.3-gate", "every rank has the sum of the gate's gradients", 10,
                   "dispatch", judge_gate),
         criterion("a9.3-bytes", "backward sends each copy's gradient once each way", 10,
                   "dispatch",
                   [](Judge& judge) {
                       judge_bytes(judge, "a9.3-values", "pass", wide_case(judge, 1));
                   }),
         criterion("a9.4-values", "a full expert takes the first copies, and no others",
                   10, "capacity", judge_capacity),
         criterion("a9.4-bytes", "what is dropped is not sent", 5, "capacity",
                   [](Judge& judge) {
                       judge_bytes(judge, "a9.4-values", "pass", wide_full_case(judge));
                   })},
        experts_solutions};
}

}  // namespace lockstep::lessons
