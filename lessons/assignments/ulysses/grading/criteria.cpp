#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

namespace {

/// Draws a sequence for `ranks` ranks, and returns a run of a task on it.
TaskRun given(const Judge& judge, const std::string& task, int ranks, bool causal) {
    const std::string kind = fmt::format("{} ranks{}", ranks, causal ? ", causal" : "");
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return judge.draw(kind + ", " + what, low, high);
    };
    const std::int64_t tokens = draw("tokens", 2, 5);
    const std::int64_t batches = draw("batches", 1, 3);
    const std::int64_t heads = draw("heads", 1, 3);
    const std::int64_t columns = heads * draw("width", 2, 5);  // for a rank's heads
    const std::int64_t parts = task.starts_with("to_") ? draw("parts", 2, 3) : 3;
    const Shape of_tokens{tokens, batches, ranks * parts * columns};
    const Shape of_heads{ranks * tokens, batches, parts * columns};
    // to_heads and to_tokens are tested with both types.
    const DType dtype = task.starts_with("to_") && ranks == 3 ? DType::f32 : DType::f64;
    TaskRun run{fmt::format("{}, {} tokens and {} heads each, {}", kind, tokens, heads,
                            name_of(dtype)),
                {}};
    for (int rank = 0; rank < ranks; ++rank) {
        RankTask& own = run.ranks.emplace_back(RankTask{task, {}, {}});
        own.numbers = {{"heads", heads}, {"causal", causal ? 1 : 0}, {"parts", parts}};
        const auto give = [&](const char* name, const Shape& shape) {
            const std::string what = fmt::format("{}, {}, rank {}", run.name, name, rank);
            own.tensors.emplace(name, TaskTensor{judge.normal(what, shape).as(dtype)});
        };
        give("x", task == "to_tokens" ? of_heads : of_tokens);
        if (task == "backward") give("dy", {tokens, batches, ranks * columns});
    }
    return run;
}

/// Returns runs on 1, 2, 3 and more ranks; attention also runs with a causal mask.
std::vector<TaskRun> runs(const Judge& judge, const std::string& task) {
    std::vector<TaskRun> all;
    for (const int ranks : {2, 3, 1, static_cast<int>(judge.draw("more ranks", 4, 6))})
        for (const bool causal : {false, true})
            if (!causal || !task.starts_with("to_"))
                all.push_back(given(judge, task, ranks, causal));
    return all;
}

/// Judges values, and whether a rank sends only what other ranks need, by any verb.
void judge_values(Judge& judge, const TaskRun& run) {
    judge.given_as_before(run);
    judge.as_right(run);
    judge.figures_as_right(run, judge.exercise(),
                           {{kSent,
                             {100, 10},
                             "a rank sends to each other rank only what that rank needs: "
                             "its heads' columns, or its tokens"}});
}

void judge_bytes(Judge& judge, const TaskRun& run) {
    judge.needs_values(run, judge_values);
    judge.verbs_as_right(run, judge.exercise());
}

}  // namespace

Assignment ulysses_assignment() {
    return {"ulysses",
            "Ulysses: ranks shard the heads",
            "Attention over a sharded sequence, with an all-to-all to the heads and one "
            "back.",
            {"ulysses.hpp", "ulysses.cpp", "adapters.cpp"},
            taught_by(
                "ring-self-attention",
                {{"a13.1-heads", "to_heads returns all tokens of a rank's columns", 25,
                  "other_ways", each_run({runs}, "to_heads", judge_values)},
                 {"a13.1-tokens", "to_tokens returns all columns of a rank's tokens", 25,
                  "other_ways", each_run({runs}, "to_tokens", judge_values)},
                 {"a13.2-values", "forward gives one device's y", 15, "other_ways",
                  each_run({runs}, "forward", judge_values), /*needs=*/{},
                  /*after=*/{"a13.1-heads", "a13.1-tokens"}},
                 {"a13.2-bytes", "forward sends each number once, and no more", 10,
                  "other_ways", each_run({runs}, "forward", judge_bytes)},
                 {"a13.3-values", "backward gives one device's gradients", 15,
                  "other_ways", each_run({runs}, "backward", judge_values),
                  /*needs=*/{},
                  /*after=*/{"a13.1-heads", "a13.1-tokens", "a13.2-values"}},
                 {"a13.3-bytes", "backward sends as much as forward", 10, "other_ways",
                  each_run({runs}, "backward", judge_bytes), /*needs=*/{"a13.2-bytes"}}}),
            ulysses_solutions};
}

}  // namespace lockstep::lessons
