#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/suspects.hpp"
#include "lessons/grader/judge.hpp"
#include "src/comm/chunks.hpp"

namespace lockstep::lessons {

namespace {

struct Ring {
    int ranks = 1;
    std::int64_t elements = 0;
    DType dtype = DType::f64;

    std::string name() const {
        return fmt::format("{} rank{}, {} element{}{}", ranks, ranks == 1 ? "" : "s",
                           elements, elements == 1 ? "" : "s",
                           dtype == DType::f64 ? "" : " in f32");
    }
    double bound() const { return dtype == DType::f64 ? 1e-10 : 1e-5; }
    /// A chunk of nothing need not be sent.
    Allowed messages_allowed() const { return {elements < ranks ? 100 : 0, 0}; }
};

constexpr auto kWay = Judge::Way::to_rank_before;

/// Sizes that ranks divide and do not divide, fewer elements than ranks, one rank,
/// another type, and a larger ring; drawn anew for each grading. The first has chunks of
/// one size, so that a wrong way round is no mistake of sizes.
std::vector<Ring> rings(const Judge& judge) {
    const auto draw = [&](const char* name, std::int64_t low, std::int64_t high) {
        return judge.draw(name, low, high);
    };
    return {{4, 4 * draw("fours", 2, 9)},
            {2, draw("two", 5, 19)},
            {3, 3 * draw("threes", 2, 9) + draw("rest of threes", 1, 2)},
            {1, draw("one", 2, 9)},
            {5, draw("few", 1, 4)},
            {4, 4 * draw("floats", 3, 9) + draw("rest of floats", 1, 3), DType::f32},
            {static_cast<int>(draw("ranks", 6, 8)), draw("elements", 33, 95)}};
}

/// One whose messages are long against their latency.
Ring long_ring(const Judge& judge) {
    const auto ranks = static_cast<int>(judge.draw("ranks of the long one", 5, 7));
    return {ranks, ranks * judge.draw("long", 7'000, 9'000)};
}

TaskRun run_of(const Judge& judge, const std::string& task, const Ring& ring) {
    TaskRun run{ring.name(), {}};
    for (int rank = 0; rank < ring.ranks; ++rank) {
        const std::string name = fmt::format("{}, rank {}", ring.name(), rank);
        const HostTensor buffer = judge.normal(name, {ring.elements}).as(ring.dtype);
        run.ranks.push_back({task, {{"buffer", {buffer}}}, {}});
    }
    return run;
}

HostTensor sum_of(HostTensor sum, const HostTensor& values, double factor) {
    for (std::int64_t i = 0; i < sum.elements(); ++i)
        sum.set(i, sum.at(i) + factor * values.at(i));
    return sum;
}

/// Says what a rank has in the place of a sum's chunk; `given` has what each had there.
std::string cause_of_sum(const std::function<bool(const HostTensor&)>& is,
                         std::size_t rank, const HostTensor& right,
                         const OfRanks& given) {
    for (std::size_t from = 0; from < given.size(); ++from)
        if (is(given[from]))
            return from == rank
                       ? "these are the rank's own values: nothing was added to them; is "
                         "the last hop missing?"
                       : fmt::format("these are the values of rank {} alone, and no sum",
                                     from);
    for (std::size_t from = 0; from < given.size(); ++from) {
        if (is(sum_of(right, given[from], -1)))
            return fmt::format(
                "the sum lacks the values of rank {}: these are the values before a hop "
                "that is missing",
                from);
        if (is(sum_of(right, given[from], 1)))
            return fmt::format("the values of rank {} are in the sum twice", from);
    }
    return "";
}

/// Says the same of a chunk that should be gathered.
std::string cause_of_gathered(const std::function<bool(const HostTensor&)>& is,
                              std::size_t rank, const OfRanks& given) {
    for (std::size_t from = 0; from < given.size(); ++from)
        if (is(given[from]))
            return from == rank
                       ? "that is what the rank held there itself: the chunk did not "
                         "arrive; is a hop missing, or does a rank hand on another "
                         "chunk?"
                       : fmt::format(
                             "that is what rank {} held there: each rank hands on what "
                             "it received last, its own chunk first",
                             from);
    return "";
}

/// Says why the first rank whose chunk is wrong has another one. It is the chunk of that
/// index, or each rank's own.
std::string cause(Judge& judge, const Ring& ring, const TaskRun& run,
                  const std::string& name, std::optional<int> index,
                  const OfRanks& left) {
    std::string way = Judge::other_way(judge.run(run).report, ring.ranks, kWay);
    if (!way.empty()) return way;
    const std::string& task = run.ranks.front().task;
    if (task == "all_reduce" && index)
        return "each rank has its own chunk of the sum: what is missing is that they "
               "gather all chunks";
    for (std::size_t rank = 0; rank < left.size(); ++rank) {
        const HostTensor& right = judge.right(run).ranks[rank].tensors.at(name);
        const auto is = [&](const HostTensor& values) {
            return Judge::are_close(left[rank], values, ring.bound());
        };
        if (is(right)) continue;
        const Chunk part =
            chunk(ring.elements, ring.ranks, index.value_or(static_cast<int>(rank)));
        OfRanks given;
        for (const RankTask& each : run.ranks)
            given.push_back(
                each.tensors.at("buffer").values.rows(part.begin, part.count));
        return task == "all_gather" ? cause_of_gathered(is, rank, given)
                                    : cause_of_sum(is, rank, right, given);
    }
    return "";
}

/// Asks for the chunks that the task should make whole: each rank's own, and then all,
/// if it gathers them.
void judge_chunks(Judge& judge, const std::string& task, const Ring& ring) {
    const TaskRun run = run_of(judge, task, ring);
    judge.run_ring(run, kWay);
    const auto ask = [&](const std::string& name, std::optional<int> index) {
        AskedValues asked{{name}};
        asked.bound = ring.bound();
        asked.cause = [&](const std::string&, const OfRanks& left) {
            return cause(judge, ring, run, name, index, left);
        };
        judge.as_right(run, asked);
    };
    ask("own chunk", {});
    for (int index = 0; index < ring.ranks && task != "reduce_scatter"; ++index)
        ask(fmt::format("chunk {}", index), index);
}

/// Returns a run with right values and messages one way, for what it cost.
TaskRun right_run(Judge& judge, const std::string& exercise, const std::string& task,
                  const Ring& ring) {
    judge.needs(exercise + "-values",
                [&](Judge& asking) { judge_chunks(asking, task, ring); });
    TaskRun run = run_of(judge, task, ring);
    judge.one_way(run.name, judge.run(run).report, kWay);
    return run;
}

/// Judges the bytes of a reduce-scatter or an all-gather, which leave no choice.
void judge_bytes(Judge& judge, const std::string& exercise, const std::string& task) {
    for (const Ring& ring : rings(judge)) {
        const TaskRun run = right_run(judge, exercise, task, ring);
        for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
            const auto name = fmt::format("{}: {}: rank {}: ", exercise, run.name, rank);
            const auto sent = [=](const RunReport& report) {
                return report.ranks[rank].bytes_sent();
            };
            const auto messages = [=](const RunReport& report) {
                return report.ranks[rank].messages_sent();
            };
            judge.figure_as_right(run, name + "sent", "bytes", sent);
            judge.figure_as_right(run, name + "messages", "messages", messages,
                                  ring.messages_allowed());
        }
    }
}

/// Judges the bytes of an all-reduce. Which two chunks a rank does not send depends on
/// where each is whole; how much all ranks send together does not.
void judge_all_bytes(Judge& judge) {
    for (const Ring& ring : rings(judge)) {
        const TaskRun run = right_run(judge, "a1.3", "all_reduce", ring);
        const std::string name = "a1.3: " + run.name;
        judge.figure_as_right(run, name + ": sent by all", "bytes",
                              std::mem_fn(&RunReport::bytes_sent));
        judge.figure_as_right(run, name + ": messages of all", "messages",
                              std::mem_fn(&RunReport::messages_sent),
                              ring.messages_allowed());
        const std::int64_t most =
            2 * (ring.elements - ring.elements / ring.ranks) * bytes_of(ring.dtype);
        for (const RankReport& rank : judge.run(run).report.ranks)
            judge.ask(rank.bytes_sent() <= most,
                      fmt::format("{}: at most {} bytes a rank", name, most),
                      fmt::format("{} bytes", rank.bytes_sent()));
    }
}

void judge_time(Judge& judge) {
    judge.time_as_right(
        right_run(judge, "a1.3", "all_reduce", long_ring(judge)), "a1.3", {100, 10},
        "a hop sends a chunk and receives one at the same time, if both are in a "
        "group()");
}

void judge_memory(Judge& judge) {
    judge.figures_as_right(right_run(judge, "a1.3", "all_reduce", long_ring(judge)),
                           "a1.3", {{kPeak, {100, 2}}});
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    std::function<void(Judge&)> judge) {
    return {id, title, points, lesson_step("gradient-accumulation", "ring"),
            std::move(judge)};
}

}  // namespace

Assignment ring_all_reduce_assignment() {
    const auto values = [](const char* task) {
        return [task](Judge& judge) {
            for (const Ring& ring : rings(judge))
                judge_chunks(judge, task, ring);
        };
    };
    return {
        "ring-all-reduce",
        "A ring all-reduce",
        "Reduce-scatter, all-gather and all-reduce out of send and recv, for any number "
        "of ranks and elements.",
        {"ring.hpp", "ring.cpp", "adapters.cpp"},
        {criterion("a1.1-values", "reduce_scatter leaves each rank its chunk of the sum",
                   25, values("reduce_scatter")),
         criterion("a1.1-bytes", "reduce_scatter sends round the ring, all but one chunk",
                   10,
                   [](Judge& judge) { judge_bytes(judge, "a1.1", "reduce_scatter"); }),
         criterion("a1.2-values", "all_gather leaves every rank all chunks", 25,
                   values("all_gather")),
         criterion("a1.2-bytes", "all_gather sends round the ring, all but one chunk", 10,
                   [](Judge& judge) { judge_bytes(judge, "a1.2", "all_gather"); }),
         criterion("a1.3-values", "all_reduce leaves every rank the sum", 10,
                   values("all_reduce")),
         criterion("a1.3-bytes", "all_reduce sends 2(n-1)/n of the buffer", 5,
                   judge_all_bytes),
         criterion("a1.3-time", "all_reduce keeps all links busy at once", 10,
                   judge_time),
         criterion("a1.3-memory", "all_reduce needs room for one chunk beside the buffer",
                   5, judge_memory)},
        ring_all_reduce_solutions};
}

}  // namespace lockstep::lessons
