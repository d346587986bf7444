#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/left_schedule.hpp"
#include "lessons/assignments/trained_stack.hpp"
#include "lessons/grader/judge.hpp"
#include "src/core/require.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/schedule.hpp"
#include "src/pipeline/timer.hpp"
#include "src/pipeline/validate.hpp"

namespace lockstep::lessons {

namespace {

// The three functions of the handout, as its table has them: what they are asked for, and
// what they are held to.

struct Case {
    int stages = 1;
    int micro_batches = 1;
    int limit = 0;  ///< 0 if there is none

    std::string name() const {
        const std::string sizes = fmt::format("p = {}, m = {}", stages, micro_batches);
        return limit == 0 ? sizes : fmt::format("{}, limit {}", sizes, limit);
    }
    AskedSchedule asked() const { return {name(), stages, micro_batches}; }
};

/// A function of the handout, and what it is held to.
struct Exercise {
    std::string id;
    std::string task;
    std::vector<Case> (*cases)(const Judge& judge);
    /// The word for what a stage holds, and the most that it may hold.
    const char* held;
    int (*most_held)(const Case& size, int stage);
    /// How many forwards and backwards long the least time under the limit is; with
    /// halves, the least bubble, in halves.
    int (*least)(const Case& size);
    bool halves = false;
};

int drawn(const Judge& judge, const std::string& name, int low, int high) {
    return static_cast<int>(judge.draw(name, low, high));
}

std::vector<Case> plain_cases(const Judge& judge) {
    return {{4, 8},   {3, 7},
            {1, 5},   {5, 3},
            {4, 1},   {drawn(judge, "a4.1: p", 6, 9), drawn(judge, "a4.1: m", 11, 19)},
            {32, 600}};
}

std::vector<Case> limited_cases(const Judge& judge) {
    const int p = drawn(judge, "a4.2: p", 6, 9);
    return {{4, 8, 2},
            {4, 9, 3},
            {3, 4, 1},
            {1, 5, 2},
            {5, 4, 2},
            {9, 7, 3},
            {4, 1, 1},
            {3, 8, 7},
            {p, drawn(judge, "a4.2: m", 17, 29), drawn(judge, "a4.2: limit", 3, p - 2)},
            {32, 600, 13}};
}

std::vector<Case> split_cases(const Judge& judge) {
    const int p = drawn(judge, "a4.3: p", 6, 9);
    return {{4, 8, 4},
            {4, 9, 5},
            {3, 7, 5},
            {2, 5, 9},
            {1, 4, 1},
            {5, 3, 6},
            {4, 5, 6},
            {p, drawn(judge, "a4.3: m", 19, 29),
             drawn(judge, "a4.3: limit", p + 1, 2 * p - 2)},
            {24, 500, 33}};
}

int limited_turns(const Case& size) {
    const int most = std::min(size.limit, size.stages);
    const int waits = (size.micro_batches + most - 1) / most - 1;
    return size.micro_batches + size.stages - 1 + waits * (size.stages - most);
}

const Exercise kPlain{
    "a4.1",
    "one_forward_one_backward",
    plain_cases,
    "in flight",
    [](const Case& size, int stage) {
        return std::min(size.stages - stage, size.micro_batches);
    },
    [](const Case& size) { return size.micro_batches + size.stages - 1; }};
const Exercise kLimited{"a4.2",
                        "with_memory_limit",
                        limited_cases,
                        "in flight",
                        [](const Case& size, int /*stage*/) { return size.limit; },
                        limited_turns};
const Exercise kSplit{"a4.3",
                      "split_backward",
                      split_cases,
                      "held until their W",
                      [](const Case& size, int /*stage*/) { return size.limit; },
                      [](const Case& size) {
                          const int filled = std::min(size.limit, size.micro_batches);
                          return std::max(0, 2 * size.stages - 1 - filled);
                      },
                      true};

using enum InstructionKind;

const TaskResult& run(Judge& judge, const Exercise& exercise, const Case& size) {
    RankTask task{exercise.task,
                  {},
                  {{"stages", size.stages},
                   {"micro_batches", size.micro_batches},
                   {"limit", size.limit}}};
    return judge.run({size.name(), {task}});
}

const char* work_of(const Exercise& exercise) {
    return exercise.halves ? "F, I and W" : "F and B";
}

/// Every criterion asks this first: memory and time are bounds of this work, not of
/// another.
void ask_kinds(Judge& judge, const Exercise& exercise, const Case& size,
               const Schedule& schedule) {
    const auto is_other = [&](const Instruction& each) {
        const bool half = each.kind == backward_input || each.kind == backward_weight;
        const bool work =
            each.kind == forward || (exercise.halves ? half : each.kind == backward);
        return !work && each.kind != reduce_gradients && each.kind != optimizer_step;
    };
    const std::string asked =
        fmt::format("{}: {}, then R and U, and no other instructions", size.name(),
                    work_of(exercise));
    for (int stage = 0; stage < size.stages; ++stage) {
        const std::vector<Instruction>& list = schedule.of(stage);
        const auto other = std::ranges::find_if(list, is_other);
        if (other != list.end())
            judge.ask(false, asked,
                      fmt::format("stage {} has {}", stage, text_of(*other)));
    }
    judge.ask(true, asked, "no others");
}

/// Returns the schedule that was made, once it has the sizes and the kinds of work asked
/// for and can run.
Schedule schedule_of(Judge& judge, const Exercise& exercise, const Case& size) {
    const TaskResult& result = run(judge, exercise, size);
    Schedule schedule = left_schedule(judge, result, size.asked());
    ask_kinds(judge, exercise, size, schedule);
    const auto problem = find_problem(schedule);
    judge.ask(!problem, size.name() + ": it can run", problem ? "it cannot" : "it can",
              problem ? problem->sentence : "");
    return schedule;
}

/// The work once for each micro-batch, as valid schedules of its kinds have it; and then
/// the end of a step, and nothing else.
void ask_work(Judge& judge, const Exercise& exercise, const Case& size,
              const Schedule& schedule) {
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const std::vector<Instruction>& list = schedule.of(stage);
        const std::size_t work =
            (exercise.halves ? 3 : 2) * static_cast<std::size_t>(size.micro_batches);
        judge.ask(
            list.size() == work + 2 && list[work].kind == reduce_gradients &&
                list[work + 1].kind == optimizer_step,
            fmt::format(
                "{}: stage {}: {} of each micro-batch, then R and U, and nothing else",
                size.name(), stage, work_of(exercise)),
            fmt::format("{} instructions{}", list.size(),
                        list.empty() ? "" : ", the last " + text_of(list.back())));
    }
}

void ask_values(Judge& judge, const Case& size, const Schedule& schedule) {
    TrainedStack left;
    try {
        left = train_by(schedule, size.micro_batches);
    } catch (const UsageError& error) {
        judge.ask(false, size.name() + ": it trains a stack of layers", "", error.what());
    }
    for (const auto& [name, expected] :
         train_alone(size.stages, size.micro_batches, size.micro_batches))
        judge.close(size.name() + ": " + name, left.at(name), expected);
}

void judge_values(Judge& judge, const Exercise& exercise) {
    constexpr int kMostStages = 5;
    for (const Case& size : exercise.cases(judge)) {
        const TaskResult& result = run(judge, exercise, size);
        const Schedule schedule = schedule_of(judge, exercise, size);
        ask_made_alike(judge, result, size.asked());
        ask_work(judge, exercise, size, schedule);
        if (size.stages <= kMostStages) ask_values(judge, size, schedule);
    }
}

/// One micro-batch after another holds little, too: memory earns nothing if whole
/// backwards take more than three quarters of that time, and more than the least, or
/// halves more than twice the least.
void ask_overlap(Judge& judge, const Exercise& exercise, const Case& size,
                 const Schedule& schedule) {
    const int work = 3 * size.micro_batches;  // units of time, of each stage
    const int most = exercise.halves
                         ? 2 * (work + exercise.least(size))
                         : std::max(3 * exercise.least(size), work * size.stages * 3 / 4);
    const Timing timing = time_schedule(schedule, {{1, 1, 1}});
    const Picoseconds taken = exercise.halves ? timing.longest : timing.makespan;
    judge.ask(taken <= most,
              fmt::format(
                  "{}: {} units of time at most{} with t_f = t_i = t_w = 1, as one "
                  "micro-batch after another holds little, too",
                  size.name(), most,
                  exercise.halves ? " from a stage's first instruction to its last" : ""),
              fmt::format("{} units of time", taken));
}

void judge_memory(Judge& judge, const Exercise& exercise) {
    for (const Case& size : exercise.cases(judge)) {
        const Schedule schedule = schedule_of(judge, exercise, size);
        ask_overlap(judge, exercise, size, schedule);
        const std::vector<Holdings> peaks = peak_holdings(schedule);
        for (int stage = 0; stage < size.stages; ++stage) {
            const Holdings& peak = peaks[stage];
            const int held = exercise.halves ? static_cast<int>(std::lround(peak.memory))
                                             : peak.in_flight;
            const int most = exercise.most_held(size, stage);
            judge.ask(held <= most,
                      fmt::format("{}: stage {}: at most {} micro-batches {}",
                                  size.name(), stage, most, exercise.held),
                      std::to_string(held));
        }
    }
}

/// Asks for the time in the handout's table, for these durations; the names are the
/// targets'. Only a schedule that holds more than the limit takes less.
void ask_time(Judge& judge, const Exercise& exercise, const Case& size,
              const Timing& timing, const Durations& each) {
    const Picoseconds backward_time = each.backward_input + each.backward_weight;
    const Picoseconds measured = exercise.halves ? timing.bubble() : timing.makespan;
    const Picoseconds least =
        exercise.least(size) *
        (exercise.halves ? each.forward : each.forward + backward_time);
    const std::string name =
        exercise.halves ? fmt::format("{}: {}: bubble", exercise.id, size.name())
                        : fmt::format("{}: {}: time with t_f = {}, t_b = {}", exercise.id,
                                      size.name(), each.forward, backward_time);
    judge.as_reference(name, "units of time", measured, {100, 0});
    if (measured < least)
        judge.ask(
            false,
            fmt::format("{}: {} units of time, the least under the limit", name, least),
            fmt::format("{} units of time", measured),
            "a stage holds more than the limit: see " + exercise.id + "-memory");
}

/// The bubble of backward in halves, which all take the same time; else the whole, with
/// forwards that are longer than backwards, and shorter.
void judge_time(Judge& judge, const Exercise& exercise) {
    const std::vector<Durations> halves{{1, 1, 1}};
    const std::vector<Durations> whole{{1, 1, 1}, {5, 1, 1}, {2, 4, 3}};
    for (const Case& size : exercise.cases(judge)) {
        const Schedule schedule = schedule_of(judge, exercise, size);
        for (const Durations& each : exercise.halves ? halves : whole)
            ask_time(judge, exercise, size, time_schedule(schedule, {each}), each);
    }
}

Criterion criterion(const Exercise& exercise, const std::string& what,
                    const std::string& title, int points, int step,
                    void (*judged)(Judge&, const Exercise&)) {
    return {exercise.id + "-" + what, title, points,
            fmt::format("pipeline-1f1b, step {}", step),
            [&exercise, judged](Judge& judge) { judged(judge, exercise); }};
}

}  // namespace

Assignment pipeline_1f1b_assignment() {
    return {
        "pipeline-1f1b",
        "Schedules for a pipeline",
        "1F1B, the fastest order where memory is short, and backward in halves to fill "
        "the bubble, as data.",
        {"schedules.hpp", "schedules.cpp", "adapters.cpp"},
        {criterion(kPlain, "values", "1F1B computes what one device does", 15, 3,
                   judge_values),
         criterion(kPlain, "memory", "1F1B has min(p - s, m) micro-batches in flight", 10,
                   3, judge_memory),
         criterion(kPlain, "time", "1F1B is done after (m + p - 1)(t_f + t_b)", 15, 2,
                   judge_time),
         criterion(kLimited, "values", "with_memory_limit computes what one device does",
                   5, 3, judge_values),
         criterion(kLimited, "memory", "with_memory_limit keeps to the limit", 10, 3,
                   judge_memory),
         criterion(kLimited, "time", "with_memory_limit waits no longer than it must", 15,
                   4, judge_time),
         criterion(kSplit, "values", "split_backward computes what one device does", 5, 7,
                   judge_values),
         criterion(kSplit, "memory", "split_backward keeps to the limit", 10, 7,
                   judge_memory),
         criterion(kSplit, "bubble",
                   "split_backward fills the bubble as far as memory allows", 15, 7,
                   judge_time)}};
}

}  // namespace lockstep::lessons
