#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/left_schedule.hpp"
#include "lessons/assignments/trained_stack.hpp"
#include "lessons/grader/judge.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/timer.hpp"
#include "src/pipeline/validate.hpp"

namespace lockstep::lessons {

namespace {

using enum InstructionKind;

// The three functions of the handout, and what they are asked for.

struct Case {
    int stages = 1;
    int micro_batches = 1;
    int limit = 0;  ///< 0 if there is none

    std::string name() const {
        const std::string sizes = fmt::format("p = {}, m = {}", stages, micro_batches);
        return limit == 0 ? sizes : fmt::format("{}, limit {}", sizes, limit);
    }
};

/// A function of the handout.
struct Exercise {
    std::string id;
    std::string task;
    std::vector<Case> (*cases)(const Judge& judge);
    const char* held;     ///< the word for what a stage holds
    bool halves = false;  ///< of backward

    TaskRun run(const Case& size) const {
        return {size.name(),
                {{task,
                  {},
                  {{"stages", size.stages},
                   {"micro_batches", size.micro_batches},
                   {"limit", size.limit}}}}};
    }
    const char* work() const { return halves ? "F, I and W" : "F and B"; }
};

/// Draws numbers of an exercise anew for each grading.
auto draws(const Judge& judge, const std::string& exercise) {
    return [&judge, exercise](const std::string& name, int low, int high) {
        return static_cast<int>(judge.draw(exercise + ": " + name, low, high));
    };
}

/// More micro-batches than stages, and fewer, one of either, and a long pipeline.
std::vector<Case> plain_cases(const Judge& judge) {
    const auto draw = draws(judge, "a4.1");
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
    const auto draw = draws(judge, "a4.2");
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
    const auto draw = draws(judge, "a4.3");
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

const Exercise kPlain{"a4.1", "one_forward_one_backward", plain_cases, "in flight"};
const Exercise kLimited{"a4.2", "with_memory_limit", limited_cases, "in flight"};
const Exercise kSplit{"a4.3", "split_backward", split_cases, "held until their W", true};

/// What the student's function and the reference made of a case.
struct Made {
    const Exercise& exercise;
    Case size;
    TaskRun run;
    Schedule right, schedule;

    /// Returns how many micro-batches a stage may hold: without a limit, what the
    /// reference holds.
    std::vector<int> most_held() const {
        std::vector<int> most;
        for (const Holdings& peak : peak_holdings(right))
            most.push_back(size.limit > 0 ? size.limit : peak.in_flight);
        return most;
    }
};

// Schedules that can run, and compute what they should.

/// Returns what is said of a mistake that leaves the same order, if there is one.
std::string cause_of_order(const Made& made) {
    return Answers(pipeline_1f1b_solutions())
        .mistake(made.run, "", [&](const TaskResult& mistaken) {
            return read_left(mistaken).work == made.schedule.work;
        });
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

/// Every criterion asks this first: memory and time are those of the reference's kinds of
/// work, of instructions one after another, at the newest weights.
void ask_kinds(Judge& judge, const Made& made) {
    std::set<InstructionKind> kinds;
    for (const Instruction& each : made.right.of(0))
        kinds.insert(each.kind);
    const std::string asked =
        fmt::format("{}: {}, then R and U, and no other instructions", made.run.name,
                    made.exercise.work());
    for (int stage = 0; stage < made.right.stages; ++stage)
        for (const Instruction& each : made.schedule.of(stage))
            if (!kinds.contains(each.kind) ||
                each != Instruction{each.kind, each.micro_batch})
                judge.ask(false, asked,
                          fmt::format("stage {} has {}", stage, text_of(each)),
                          cause_of_other(each));
    judge.ask(true, asked, "no others");
}

/// Returns the schedule that was made, once it has the sizes and the kinds of work asked
/// for and can run.
Made made_for(Judge& judge, const Exercise& exercise, const Case& size) {
    const TaskRun run = exercise.run(size);
    Made made{exercise, size, run, right_schedule(judge, run), left_schedule(judge, run)};
    ask_kinds(judge, made);
    if (const auto problem = find_problem(made.schedule)) {
        const std::string cause = cause_of_order(made);
        judge.ask(false, run.name + ": it can run", "it cannot",
                  problem->sentence + (cause.empty() ? "" : ". " + cause));
    }
    judge.ask(true, run.name + ": it can run", "it can");
    return made;
}

/// Returns a schedule for what it holds or takes; if it is none, values have said so.
Made valid_for(const Judge& judge, const Exercise& exercise, const Case& size) {
    std::optional<Made> made;
    judge.needs(exercise.id + "-values",
                [&](Judge& asking) { made.emplace(made_for(asking, exercise, size)); });
    return *made;
}

/// Asks for the work and the end of a step, and nothing else: a valid schedule of these
/// kinds that is as long as the reference's has the work once for each micro-batch.
void ask_work(Judge& judge, const Made& made) {
    for (int stage = 0; stage < made.right.stages; ++stage) {
        const std::vector<Instruction>& list = made.schedule.of(stage);
        const std::size_t all = made.right.of(stage).size();
        judge.ask(
            list.size() == all && list[all - 2].kind == reduce_gradients &&
                list[all - 1].kind == optimizer_step,
            fmt::format(
                "{}: stage {}: {} of each micro-batch, then R and U, and nothing else",
                made.run.name, stage, made.exercise.work()),
            fmt::format("{} instructions{}", list.size(),
                        list.empty() ? "" : ", the last " + text_of(list.back())),
            list.size() != all - 2
                ? ""
                : "R and U are missing: end_step(schedule) writes them");
    }
}

void judge_values(Judge& judge, const Exercise& exercise) {
    constexpr int kMostStages = 5;
    for (const Case& size : exercise.cases(judge)) {
        const Made made = made_for(judge, exercise, size);
        ask_made_alike(judge, made.run);
        ask_work(judge, made);
        if (size.stages <= kMostStages)
            ask_trained(judge, made.run.name, made.schedule, made.right,
                        size.micro_batches);
    }
}

// What they hold, and how long they take.

/// Says where a stage holds more than it may.
std::string cause_of_holding(const Schedule& schedule, int stage, int most) {
    const ScheduleMemory memory;
    HeldByStage held(schedule, stage, memory);
    for (const Place& place : schedule.places(stage))
        if (std::lround(held.run({place.position, place.position + 1}).memory) > most)
            return fmt::format(
                "stage {} begins {}, its instruction {}, while it holds {}: the backward "
                "of one of them has to come first",
                stage, text_of(schedule.at(place)), place.position + 1, most);
    return "";
}

/// One micro-batch after another holds little, too: memory earns nothing if whole
/// backwards take more than four fifths of that time, and more than the reference, or
/// halves more than twice the reference's time.
void ask_overlap(Judge& judge, const Made& made) {
    const bool halves = made.exercise.halves;
    const Timing timing = time_schedule(made.schedule, {{1, 1, 1}});
    const Timing least = time_schedule(made.right, {{1, 1, 1}});
    const Picoseconds one_by_one =
        3 * Picoseconds{made.size.micro_batches} * made.size.stages;
    const Picoseconds most =
        halves ? 2 * least.longest : std::max(least.makespan, one_by_one * 4 / 5);
    const Picoseconds taken = halves ? timing.longest : timing.makespan;
    std::string cause = taken <= most ? "" : cause_of_order(made);
    if (cause.empty())
        cause =
            fmt::format("{}-{} says why", made.exercise.id, halves ? "bubble" : "time");
    judge.ask(
        taken <= most,
        fmt::format("{}: {} units of time at most{} with t_f = t_i = t_w = 1, as one "
                    "micro-batch after another holds little, too",
                    made.run.name, most,
                    halves ? " from a stage's first instruction to its last" : ""),
        fmt::format("{} units of time", taken), cause);
}

void judge_memory(Judge& judge, const Exercise& exercise) {
    for (const Case& size : exercise.cases(judge)) {
        const Made made = valid_for(judge, exercise, size);
        ask_overlap(judge, made);
        const std::vector<Holdings> peaks = peak_holdings(made.schedule);
        const std::vector<int> most = made.most_held();
        for (int stage = 0; stage < size.stages; ++stage) {
            const auto held = std::lround(peaks[stage].memory);
            std::string cause;
            if (held > most[stage]) {
                cause = cause_of_order(made);
                if (cause.empty())
                    cause = cause_of_holding(made.schedule, stage, most[stage]);
            }
            judge.ask(held <= most[stage],
                      fmt::format("{}: stage {}: at most {} micro-batches {}",
                                  made.run.name, stage, most[stage], exercise.held),
                      std::to_string(held), cause);
        }
    }
}

/// Returns when all is there that a stage's instructions need.
std::vector<Picoseconds> ready_on(int stage, const Schedule& schedule,
                                  const Timing& timing) {
    const auto end = [&](int there, InstructionKind kind, int i) -> Picoseconds {
        if (there < 0 || there == schedule.stages) return 0;
        const auto& list = schedule.of(there);
        const auto found = std::ranges::find(list, Instruction{kind, i});
        return timing.spans[there][found - list.begin()].end;
    };
    std::vector<Picoseconds> ready;
    for (const Instruction& work : schedule.of(stage)) {
        const int i = work.micro_batch;
        if (!is_computation(work.kind))
            ready.push_back(timing.makespan);
        else if (work.kind == forward)
            ready.push_back(end(stage - 1, forward, i));
        else if (work.kind == backward_weight)
            ready.push_back(end(stage, backward_input, i));
        else
            ready.push_back(
                std::max(end(stage, forward, i), end(stage + 1, work.kind, i)));
    }
    return ready;
}

/// A stage waits for what is next in its list; what stands further behind could run.
struct Chance {
    Place next, other;
    TimeSpan idle;
};

/// Returns what a stage could do first while it waits, if it may hold so many.
std::optional<Chance> first_chance(int stage, const Schedule& schedule,
                                   const Timing& timing, int most) {
    const std::vector<Picoseconds> ready = ready_on(stage, schedule, timing);
    const ScheduleMemory memory;
    HeldByStage held(schedule, stage, memory);
    Picoseconds free = 0;  // from then on the stage does nothing
    for (const Place& next : schedule.places(stage)) {
        const TimeSpan& span = timing.span(next);
        const bool is_full = std::lround(held.now().memory) >= most;
        for (Place other = next; span.start > free && other.position < std::ssize(ready);
             ++other.position) {
            const Picoseconds from = std::max(free, ready[other.position]);
            const bool fits = schedule.at(other).kind != forward || !is_full;
            if (fits && from < span.start) return Chance{next, other, {from, span.start}};
        }
        held.run({next.position, next.position + 1});
        free = span.end;
    }
    return std::nullopt;
}

/// Says what the first stage that waits could do.
std::string cause_of_waiting(const Made& made, const Durations& each) {
    const Schedule& schedule = made.schedule;
    const Timing timing = time_schedule(schedule, {each});
    const std::vector<int> most = made.most_held();
    std::optional<Chance> first;
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const auto missed = first_chance(stage, schedule, timing, most[stage]);
        if (missed && (!first || missed->idle.start < first->idle.start)) first = missed;
    }
    if (!first) return "";
    return fmt::format(
        "stage {} does nothing from {} to {}, since {} is next in its list; {}, which "
        "stands behind it, could run then",
        first->next.stage, first->idle.start, first->idle.end,
        text_of(schedule.at(first->next)), text_of(schedule.at(first->other)));
}

/// Asks for the reference's time, for these durations. Only a schedule that holds more
/// than the limit takes less: memory has said so.
void ask_time(Judge& judge, const Made& made, const Durations& each) {
    const std::string& id = made.exercise.id;
    const bool halves = made.exercise.halves;
    const auto time_of = [&](const Schedule& schedule) {
        const Timing timing = time_schedule(schedule, {each});
        return halves ? timing.bubble() : timing.makespan;
    };
    const Picoseconds measured = time_of(made.schedule), least = time_of(made.right);
    if (measured < least)
        judge.ask(false, fmt::format("what {}-memory asks, first", id), "");
    try {
        judge.figure(
            fmt::format("{}: {}: {}", id, made.run.name,
                        halves ? "bubble"
                               : fmt::format("time with t_f = {}, t_b = {}",
                                             each.of(forward), each.of(backward))),
            "units of time", least, measured);
    } catch (Judge::No& no) {
        no.said = cause_of_order(made);
        if (no.said.empty()) no.said = cause_of_waiting(made, each);
        throw;
    }
}

/// The bubble of backward in halves, which all take the same time; else the whole, with
/// forwards that are longer than backwards, and shorter.
void judge_time(Judge& judge, const Exercise& exercise) {
    const std::vector<Durations> halves{{1, 1, 1}};
    const std::vector<Durations> whole{{1, 1, 1}, {5, 1, 1}, {2, 4, 3}};
    for (const Case& size : exercise.cases(judge)) {
        const Made made = valid_for(judge, exercise, size);
        for (const Durations& each : exercise.halves ? halves : whole)
            ask_time(judge, made, each);
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
