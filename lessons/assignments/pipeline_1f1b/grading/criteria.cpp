#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/left_schedule.hpp"
#include "lessons/assignments/needs.hpp"
#include "lessons/assignments/pipeline_1f1b/grading/causes.hpp"
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

    MostHeld most_held_of(const Case& size) const {
        return [this, size](int stage) { return most_held(size, stage); };
    }
};

/// Draws numbers of an exercise anew for each grading.
class Draw {
  public:
    Draw(const Judge& judge, std::string exercise)
        : judge_(judge), exercise_(std::move(exercise)) {}

    int operator()(const std::string& name, int low, int high) const {
        const std::string whole = fmt::format("{}: {}", exercise_, name);
        return static_cast<int>(judge_.draw(whole, low, high));
    }

  private:
    const Judge& judge_;
    std::string exercise_;
};

/// More micro-batches than stages, and fewer, one of either, and a long pipeline.
std::vector<Case> plain_cases(const Judge& judge) {
    const Draw draw(judge, "a4.1");
    return {{draw("p", 3, 5), draw("m", 6, 12)},
            {1, draw("m on one stage", 3, 9)},
            {draw("p of few", 4, 5), draw("few", 2, 3)},
            {draw("p of one", 3, 5), 1},
            {draw("p of more", 6, 9), draw("more", 11, 19)},
            {draw("p of many", 26, 32), draw("many", 500, 600)}};
}

/// Groups of as many as the limit that fill m and do not, limits of one, of fewer than m,
/// and of more than anybody needs.
std::vector<Case> limited_cases(const Judge& judge) {
    const Draw draw(judge, "a4.2");
    const int enough = draw("p of enough", 3, 5), p = draw("p of more", 6, 9);
    return {{draw("p", 4, 5), 2 * draw("pairs", 3, 5), 2},
            {draw("p of threes", 4, 5), 3 * draw("threes", 2, 4) + draw("rest", 1, 2), 3},
            {draw("p of limit 1", 3, 5), draw("m of limit 1", 3, 6), 1},
            {1, draw("m on one stage", 3, 9), draw("limit of one stage", 1, 4)},
            {5, draw("few", 3, 4), 2},
            {draw("p of fewer", 8, 9), draw("fewer", 6, 7), 3},
            {draw("p of one", 3, 5), 1, draw("limit of one", 1, 3)},
            {enough, draw("m of enough", 7, 9), enough + draw("enough", 0, 4)},
            {p, draw("more", 17, 29), draw("limit of more", 3, p - 2)},
            {draw("p of many", 26, 32), draw("many", 500, 600),
             draw("limit of many", 9, 17)}};
}

/// Limits from p on, less than m and more, and of more than anybody needs.
std::vector<Case> split_cases(const Judge& judge) {
    const Draw draw(judge, "a4.3");
    const int least = draw("p of limit p", 3, 5), some = draw("p of some", 4, 5);
    const int most = draw("p of limit 2p - 1", 3, 4), all = draw("p of all", 2, 4);
    const int few = draw("p of few", 4, 5), p = draw("p of more", 6, 9);
    const int many = draw("p of many", 20, 24);
    return {{least, draw("m of limit p", 8, 12), least},
            {some, draw("some", 9, 12), some + draw("limit of some", 1, some - 2)},
            {most, draw("m of limit 2p - 1", 7, 11), 2 * most - 1},
            {all, draw("all", 7, 9), 2 * all + draw("limit of all", 1, 6)},
            {1, draw("m on one stage", 3, 6), draw("limit of one stage", 1, 3)},
            {few, draw("fewer than p", 2, 3), few + 1},
            {few, few + 1, few + 2},
            {p, draw("more", 19, 29), draw("limit of more", p + 1, 2 * p - 2)},
            {many, draw("many", 400, 500), many + draw("limit of many", 5, 12)}};
}

/// No order takes less. With T = t_f + t_b, let f(k) be when stage 0 begins its k-th
/// forward. Of the first k micro-batches that come back to it, one set out at f(k) or
/// later, and was on its way for p T. So f(k + L) >= f(k) + p T if at most L are in
/// flight, and the last r = m - g L of them, with 1 <= r <= L, set out at g p T or later.
/// They cross p - 1 stages forth and back, and the last stage works r T for them: the end
/// is at (g p + r + p - 1) T or later.
int limited_turns(const Case& size) {
    const int most = std::min(size.limit, size.stages);
    const int waits = (size.micro_batches + most - 1) / most - 1;
    return size.micro_batches + size.stages - 1 + waits * (size.stages - most);
}

/// No order has less. Stage 0 has its first gradient 2p - 1 halves after its first
/// forward began, and meanwhile it has forwards alone to do, as many as it may hold.
int split_turns(const Case& size) {
    const int filled = std::min(size.limit, size.micro_batches);
    return std::max(0, 2 * size.stages - 1 - filled);
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
                      split_turns,
                      true};

using enum InstructionKind;

TaskRun run_of(const Exercise& exercise, const Case& size) {
    return {size.name(),
            {{exercise.task,
              {},
              {{"stages", size.stages},
               {"micro_batches", size.micro_batches},
               {"limit", size.limit}}}}};
}

const char* work_of(const Exercise& exercise) {
    return exercise.halves ? "F, I and W" : "F and B";
}

/// Says what an instruction is, if it is none of those asked for.
std::string cause_of_other(const Instruction& other) {
    if (other.together)
        return "it begins together with the one before it, and all are asked one after "
               "another";
    if (is_message(other.kind))
        return "messages are not asked for: whoever runs the schedule adds them";
    if (other.kind == backward) return "B is both halves at once: I and W are asked";
    if (other.kind == backward_input || other.kind == backward_weight)
        return "that is a half of a backward: B is asked, which is whole";
    return "";
}

/// Every criterion asks this first: memory and time are bounds of this work, not of
/// another, and of instructions one after another, at the newest weights.
void ask_kinds(Judge& judge, const Exercise& exercise, const Case& size,
               const Schedule& schedule) {
    const auto is_other = [&](const Instruction& each) {
        const bool half = each.kind == backward_input || each.kind == backward_weight;
        const bool work =
            each.kind == forward || (exercise.halves ? half : each.kind == backward);
        const bool end = each.kind == reduce_gradients || each.kind == optimizer_step;
        return !(work || end) || each != Instruction{each.kind, each.micro_batch};
    };
    const std::string asked =
        fmt::format("{}: {}, then R and U, and no other instructions", size.name(),
                    work_of(exercise));
    for (int stage = 0; stage < size.stages; ++stage) {
        const std::vector<Instruction>& list = schedule.of(stage);
        const auto other = std::ranges::find_if(list, is_other);
        if (other != list.end())
            judge.ask(false, asked,
                      fmt::format("stage {} has {}", stage, text_of(*other)),
                      cause_of_other(*other));
    }
    judge.ask(true, asked, "no others");
}

/// Returns the schedule that was made, once it has the sizes and the kinds of work asked
/// for and can run.
Schedule schedule_of(Judge& judge, const Exercise& exercise, const Case& size) {
    const TaskResult& result = judge.run(run_of(exercise, size));
    Schedule schedule = left_schedule(judge, result, size.asked());
    ask_kinds(judge, exercise, size, schedule);
    const auto problem = find_problem(schedule);
    if (problem) {
        const std::string cause = cause_of_standstill(schedule);
        judge.ask(false, size.name() + ": it can run", "it cannot",
                  problem->sentence + (cause.empty() ? "" : ". " + cause));
    }
    judge.ask(true, size.name() + ": it can run", "it can");
    return schedule;
}

/// Returns a schedule for what it holds or takes; if it is none, values have said so.
Schedule right_schedule(const Judge& judge, const Exercise& exercise, const Case& size) {
    Schedule schedule;
    needs(judge, exercise.id + "-values",
          [&](Judge& asking) { schedule = schedule_of(asking, exercise, size); });
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
                        list.empty() ? "" : ", the last " + text_of(list.back())),
            list.size() == work ? "R and U are missing: end_step(schedule) writes them"
                                : "");
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
        const Schedule schedule = schedule_of(judge, exercise, size);
        ask_made_alike(judge, judge.run(run_of(exercise, size)), size.asked());
        ask_work(judge, exercise, size, schedule);
        if (size.stages <= kMostStages) ask_values(judge, size, schedule);
    }
}

/// Says that a schedule is that for another limit, too, if it is.
std::string cause_of_limit(Judge& judge, const Exercise& exercise, Case size,
                           const Schedule& schedule, int limit) {
    if (size.limit == 0 || size.limit == limit) return "";
    const int asked = std::exchange(size.limit, limit);
    try {
        if (schedule_of(judge, exercise, size).work != schedule.work) return "";
    } catch (const Judge::No&) {
        return "";
    }
    return fmt::format("the order for limit {} is that for limit {}, too", asked, limit);
}

/// One micro-batch after another holds little, too: memory earns nothing if whole
/// backwards take more than four fifths of that time, and more than the least, or
/// halves more than twice the least. Time says why.
void ask_overlap(Judge& judge, const Exercise& exercise, const Case& size,
                 const Schedule& schedule) {
    const int work = 3 * size.micro_batches;  // units of time, of each stage
    const int most = exercise.halves
                         ? 2 * (work + exercise.least(size))
                         : std::max(3 * exercise.least(size), work * size.stages * 4 / 5);
    const Timing timing = time_schedule(schedule, {{1, 1, 1}});
    const Picoseconds taken = exercise.halves ? timing.longest : timing.makespan;
    judge.ask(
        taken <= most,
        fmt::format(
            "{}: {} units of time at most{} with t_f = t_i = t_w = 1, as one "
            "micro-batch after another holds little, too",
            size.name(), most,
            exercise.halves ? " from a stage's first instruction to its last" : ""),
        fmt::format("{} units of time", taken),
        fmt::format("{}-{} says why", exercise.id, exercise.halves ? "bubble" : "time"));
}

void judge_memory(Judge& judge, const Exercise& exercise) {
    for (const Case& size : exercise.cases(judge)) {
        const Schedule schedule = right_schedule(judge, exercise, size);
        ask_overlap(judge, exercise, size, schedule);
        const std::vector<Holdings> peaks = peak_holdings(schedule);
        const MostHeld most = exercise.most_held_of(size);
        for (int stage = 0; stage < size.stages; ++stage) {
            const auto held = std::lround(peaks[stage].memory);
            const std::string asked =
                fmt::format("{}: stage {}: at most {} micro-batches {}", size.name(),
                            stage, most(stage), exercise.held);
            if (held > most(stage)) {
                const std::string cause =
                    cause_of_limit(judge, exercise, size, schedule, 2 * size.stages);
                judge.ask(
                    false, asked, std::to_string(held),
                    cause.empty() ? cause_of_holding(schedule, stage, most) : cause);
            }
            judge.ask(true, asked, std::to_string(held));
        }
    }
}

/// Asks for the time in the handout's table, for these durations. Only a schedule that
/// holds more than the limit takes less: memory has said so.
void ask_time(Judge& judge, const Exercise& exercise, const Case& size,
              const Schedule& schedule, const Durations& each) {
    const Timing timing = time_schedule(schedule, {each});
    const Picoseconds backward_time = each.backward_input + each.backward_weight;
    const Picoseconds measured = exercise.halves ? timing.bubble() : timing.makespan;
    const Picoseconds least =
        exercise.least(size) *
        (exercise.halves ? each.forward : each.forward + backward_time);
    if (measured < least)
        judge.ask(false, fmt::format("what {}-memory asks, first", exercise.id), "");
    const std::string name =
        exercise.halves ? fmt::format("{}: {}: bubble", exercise.id, size.name())
                        : fmt::format("{}: {}: time with t_f = {}, t_b = {}", exercise.id,
                                      size.name(), each.forward, backward_time);
    try {
        judge.figure(name, "units of time", least, measured);
    } catch (Judge::No& no) {
        if (exercise.halves)
            no.said = cause_of_limit(judge, exercise, size, schedule, size.stages);
        if (no.said.empty())
            no.said = cause_of_waiting(schedule, each, exercise.most_held_of(size));
        throw;
    }
}

/// The bubble of backward in halves, which all take the same time; else the whole, with
/// forwards that are longer than backwards, and shorter.
void judge_time(Judge& judge, const Exercise& exercise) {
    const std::vector<Durations> halves{{1, 1, 1}};
    const std::vector<Durations> whole{{1, 1, 1}, {5, 1, 1}, {2, 4, 3}};
    for (const Case& size : exercise.cases(judge)) {
        const Schedule schedule = right_schedule(judge, exercise, size);
        for (const Durations& each : exercise.halves ? halves : whole)
            ask_time(judge, exercise, size, schedule, each);
    }
}

Criterion criterion(const Exercise& exercise, const std::string& what,
                    const std::string& title, int points, const char* step,
                    void (*judged)(Judge&, const Exercise&)) {
    return {exercise.id + "-" + what, title, points, lesson_step("pipeline-1f1b", step),
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
        {criterion(kPlain, "values", "1F1B computes what one device does", 10, "memory",
                   judge_values),
         criterion(kPlain, "memory", "1F1B has min(p - s, m) micro-batches in flight", 20,
                   "memory", judge_memory),
         criterion(kPlain, "time", "1F1B is done after (m + p - 1)(t_f + t_b)", 10,
                   "gpipe", judge_time),
         criterion(kLimited, "values", "with_memory_limit computes what one device does",
                   5, "memory", judge_values),
         criterion(kLimited, "memory", "with_memory_limit keeps to the limit", 10,
                   "memory", judge_memory),
         criterion(kLimited, "time", "with_memory_limit waits no longer than it must", 15,
                   "steady_state", judge_time),
         criterion(kSplit, "values", "split_backward computes what one device does", 5,
                   "halves", judge_values),
         criterion(kSplit, "memory", "split_backward keeps to the limit", 10, "halves",
                   judge_memory),
         criterion(kSplit, "bubble",
                   "split_backward fills the bubble as far as memory allows", 15,
                   "halves", judge_time)},
        pipeline_1f1b_solutions};
}

}  // namespace lockstep::lessons
