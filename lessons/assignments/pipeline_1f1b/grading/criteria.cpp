#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/left_schedule.hpp"
#include "lessons/assignments/trained_stack.hpp"
#include "lessons/grader/judge.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/timer.hpp"

namespace lockstep::lessons {

namespace {

using enum InstructionKind;

struct Case {
    int stages = 1;
    int micro_batches = 1;
    int limit = 0;  ///< 0 if there is none
};

/// Returns a function that draws an exercise's numbers, again for each grading.
auto draws(const Judge& judge, const std::string& exercise) {
    return [&judge, exercise](const std::string& name, int low, int high) {
        return static_cast<int>(judge.draw(exercise + ": " + name, low, high));
    };
}

/// Returns cases: more and fewer micro-batches than stages, one stage, one micro-batch,
/// and a long pipeline.
std::vector<Case> plain_cases(const Judge& judge) {
    const auto draw = draws(judge, "a4.1");
    return {{draw("p", 3, 5), draw("m", 6, 12)},
            {1, draw("m on one stage", 3, 9)},
            {draw("p of few", 4, 5), draw("few", 2, 3)},
            {draw("p of one", 3, 5), 1},
            {draw("p of more", 6, 9), draw("more", 11, 19)},
            {draw("p of many", 26, 32), draw("many", 500, 600)}};
}

/// Returns cases in which the limit divides m, and in which it does not. Others: a limit
/// of one, one stage, fewer micro-batches than stages, and limits of p or more.
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

/// Returns cases with limits of p or more: below m, above m, above every stage's need.
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

/// A function of the handout, and the cases in which it is judged.
struct Exercise {
    const char* id;
    const char* task;
    std::vector<Case> (*cases)(const Judge& judge);
};
const Exercise kPlain{"a4.1", "one_forward_one_backward", plain_cases};
const Exercise kLimited{"a4.2", "with_memory_limit", limited_cases};
const Exercise kSplit{"a4.3", "split_backward", split_cases};

/// Returns a case's schedules. The criterion fails if the student's schedule cannot run.
LeftSchedules made_for(Judge& judge, const Exercise& exercise, const Case& size) {
    const auto [p, m, limit] = size;
    const std::string limited = limit > 0 ? fmt::format(", limit {}", limit) : "";
    const RankTask task{
        exercise.task, {}, {{"stages", p}, {"micro_batches", m}, {"limit", limit}}};
    LeftSchedules made =
        left_schedules(judge, {fmt::format("p = {}, m = {}{}", p, m, limited), {task}});
    ask_runnable(judge, made);
    return made;
}

/// Returns the most time for a schedule in which stages work at the same time: `percent`
/// of the time of one micro-batch after another, or the reference's if that is longer.
/// With halves, it is for the slowest stage.
Picoseconds most_time(const LeftSchedules& made, int percent) {
    const Timing right = time_schedule(made.right, {{1, 1, 1}});
    const Picoseconds stages = made.right.stages;
    // Stage 0 waits for each micro-batch's I, which comes back before the others' W.
    const Picoseconds each = made.has_halves() ? 2 * stages + 1 : 3 * stages;
    return std::max(made.has_halves() ? right.longest : right.makespan,
                    made.right.micro_batches * each * percent / 100);
}

/// Judges the lists' lengths, whether stages work at the same time, and the results of
/// training. This is enough: a valid schedule with as many instructions of each kind does
/// each piece of work once.
void ask_values(Judge& judge, const LeftSchedules& made) {
    ask_made_alike(judge, made);
    for (int stage = 0; stage < made.right.stages; ++stage) {
        const std::vector<Instruction>& list = made.left.of_stage(stage);
        const std::size_t all = made.right.of_stage(stage).size();
        judge.ask(list.size() == all && list[all - 2].kind == reduce_gradients &&
                      list[all - 1].kind == optimizer_step,
                  fmt::format("{}: stage {}: each micro-batch once, then R and U, which "
                              "end_step(schedule) writes, and nothing else",
                              made.run.name, stage),
                  fmt::format("{} instructions{}", list.size(),
                              list.empty() ? "" : ", the last " + text_of(list.back())));
    }
    ask_overlap(judge, made, most_time(made, 98));
    ask_trained(judge, made, made.right.micro_batches);
}

/// Returns the time of 1F1B's slowest stage if each W is right behind its I.
Picoseconds time_of_whole_backwards(int stages, int micro_batches) {
    Schedule whole = make_schedule("1f1b", {stages, micro_batches, 1});
    for (auto& list : whole.work) {
        std::vector<Instruction> halves;
        for (Instruction each : list) {
            if (each.kind == backward) {
                each.kind = backward_input;
                halves.push_back(each);
                each.kind = backward_weight;
            }
            halves.push_back(each);
        }
        list = halves;
    }
    return time_schedule(whole, {{1, 1, 1}}).longest;
}

/// Judges memory, and whether the schedule is fast enough. With halves, its bubble must
/// be nearer to the reference's than to that of whole backwards, which hold little, too.
void ask_memory(Judge& judge, const LeftSchedules& made) {
    const auto [run, left, right] = made;
    Picoseconds most = most_time(made, 80);
    if (made.has_halves())
        most = (time_schedule(right, {{1, 1, 1}}).longest +
                time_of_whole_backwards(right.stages, right.micro_batches)) /
               2;
    ask_overlap(judge, made, most);
    ask_held(judge, made);
}

/// Returns a criterion. Invalid schedules are reported only by the criterion "values".
Criterion criterion(const Exercise& exercise, const std::string& what,
                    const std::string& title, int points, const char* step,
                    void (*ask)(Judge&, const LeftSchedules&)) {
    const std::string values = std::string(exercise.id) + "-values";
    Criterion made{std::string(exercise.id) + "-" + what, title, points,
                   lesson_step("pipeline-1f1b", step), [&exercise, ask](Judge& judge) {
                       for (const Case& size : exercise.cases(judge))
                           ask(judge, made_for(judge, exercise, size));
                   }};
    if (made.id != values) made.after = {values};
    return made;
}

}  // namespace

Assignment pipeline_1f1b_assignment() {
    return {
        "pipeline-1f1b",
        "Schedules for a pipeline",
        "Schedules as data: 1F1B, the fastest order under a memory limit, and backward "
        "in halves to fill the bubble.",
        {"schedules.hpp", "schedules.cpp", "adapters.cpp"},
        {criterion(kPlain, "values", "1F1B computes the same as one device", 10, "memory",
                   ask_values),
         criterion(kPlain, "memory", "1F1B has min(p - s, m) micro-batches in flight", 20,
                   "memory", ask_memory),
         criterion(kPlain, "time", "1F1B is done after (m + p - 1)(t_f + t_b)", 10,
                   "gpipe", ask_time),
         criterion(kLimited, "values",
                   "with_memory_limit computes the same as one device", 5, "memory",
                   ask_values),
         criterion(kLimited, "memory", "with_memory_limit keeps to the limit", 10,
                   "memory", ask_memory),
         criterion(kLimited, "time", "with_memory_limit waits no longer than it must", 15,
                   "steady_state", ask_time),
         criterion(kSplit, "values", "split_backward computes the same as one device", 5,
                   "halves", ask_values),
         criterion(kSplit, "memory", "split_backward keeps to the limit", 10, "halves",
                   ask_memory),
         criterion(kSplit, "bubble",
                   "split_backward fills the bubble as far as memory allows", 15,
                   "halves", ask_time)},
        pipeline_1f1b_solutions};
}

}  // namespace lockstep::lessons
