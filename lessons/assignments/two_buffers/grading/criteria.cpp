#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/left_schedule.hpp"
#include "lessons/assignments/trained_stack.hpp"
#include "lessons/assignments/two_buffers/grading/memory.hpp"
#include "lessons/grader/judge.hpp"
#include "src/pipeline/weight_versions.hpp"

namespace lockstep::lessons {

namespace {

using enum InstructionKind;
using two_buffers::drawn;

// Questions about the schedule of a10.1. Work, memory and time are judged with only F and
// B in the lists, so that a mistake in updates or versions costs no points there.

struct Case {
    int stages = 1;
    int micro_batches = 1;
    int per_update = 1;
};

/// Returns cases that are drawn again for each grading: k = p - 1 and more, one stage,
/// m = k, fewer micro-batches than stages, and many stages.
std::vector<Case> cases(const Judge& judge) {
    const auto draw = [&](const std::string& name, int low, int high) {
        return drawn(judge, "a10.1: " + name, low, high);
    };
    const int p = draw("p", 6, 9), k = draw("k", p, 2 * p);
    const int many = draw("many stages", 14, 16), after = draw("many", many, 30);
    return {{4, 4 * draw("updates of 4", 3, 5), 4},
            {3, 2 * draw("updates of 3", 5, 8), 2},
            {5, 8 * draw("updates of 5", 2, 4), 8},
            {1, draw("alone", 3, 5), 1},
            {1, 2 * draw("updates alone", 3, 5), 2},
            {2, draw("two", 4, 7), 1},
            {4, 4, 4},
            {5, 4, 4},
            {p, k * draw("updates", 3, 5), k},
            {p + 1, p * 4, p},
            {many, after * draw("many updates", 5, 8), after}};
}

/// Returns the schedules of a case. Fails the criterion if an F or B is missing: the
/// functions below need every F and B.
LeftSchedules made_for(Judge& judge, const Case& size) {
    const auto [p, m, k] = size;
    const RankTask task{
        "two_buffers", {}, {{"stages", p}, {"micro_batches", m}, {"per_update", k}}};
    LeftSchedules made =
        left_schedules(judge, {fmt::format("p = {}, m = {}, k = {}", p, m, k), {task}});
    const LeftSchedules order = order_alone(made);
    const std::string asked = made.run.name + ": F and B of each micro-batch";
    for (int stage = 0; stage < p; ++stage)
        for (const Instruction& each : order.right.of_stage(stage))
            if (std::ranges::count(order.left.of_stage(stage), each) == 0)
                judge.ask(false, asked,
                          fmt::format("stage {} has no {}", stage, text_of(each)));
    judge.ask(true, asked, "they are there");
    return made;
}

/// Judges whether stages work at the same time: the order of F and B may take `percent`
/// of the time of one micro-batch after another or, if longer, the time with a flush
/// after each batch.
void ask_together(Judge& judge, const LeftSchedules& order, int percent) {
    const int p = order.right.stages, m = order.right.micro_batches;
    const int k = order.number("per_update");
    const int flushed = 3 * (k + p - 1) * (m / k);
    ask_overlap(judge, order, std::max(flushed, 3 * m * p * percent / 100));
}

void ask_work(Judge& judge, const LeftSchedules& made) {
    ask_made_alike(judge, made);
    const LeftSchedules order = order_alone(made);
    ask_runnable(judge, order, "R and U are not counted: ");
    ask_together(judge, order, 98);
}

/// Explains the first wrong instruction of a stage; empty if there is none. R and U must
/// follow every k-th backward, and each backward must be of the current batch.
std::string wrong_update(const Schedule& schedule, int stage, int k) {
    const auto& list = schedule.of_stage(stage);
    int backwards = 0;
    int due = 0;  // how many of R and U are still to come
    for (const Place place : schedule.places(stage)) {
        const Instruction& work = schedule.at(place);
        const bool is_end = !is_computation(work.kind);
        const InstructionKind next = due == 2 ? reduce_gradients : optimizer_step;
        if (is_end != (due > 0) || (is_end && work.kind != next) ||
            (work.kind == backward && work.micro_batch / k != backwards / k))
            return fmt::format(
                "{}: {} is expected here, after {} backwards", schedule.where(place),
                due > 0 ? text_of(Instruction{next})
                        : fmt::format("F, or B of batch {},", backwards / k),
                backwards);
        if (is_end) --due;
        if (work.kind == backward && ++backwards % k == 0) due = 2;
    }
    return due == 0 ? ""
                    : fmt::format("stage {}: its list ends with {}, not with R and U",
                                  stage, text_of(list.back()));
}

void ask_updates(Judge& judge, const LeftSchedules& made) {
    const int k = made.number("per_update");
    for (int stage = 0; stage < made.right.stages; ++stage) {
        const std::string wrong = wrong_update(made.left, stage, k);
        judge.ask(wrong.empty(),
                  fmt::format("{}: stage {}: R and U right behind the last backward of "
                              "each batch of {}, and nowhere else",
                              made.run.name, stage, k),
                  wrong.empty() ? "it is so" : "it is not so", wrong);
    }
}

/// The version that each F and B reads: by stage, kind and micro-batch.
using Reads = std::map<std::tuple<int, InstructionKind, int>, int>;

Reads reads_of(const Schedule& schedule) {
    const WeightVersions versions(schedule);
    Reads reads;
    for (int stage = 0; stage < schedule.stages; ++stage)
        for (const Place place : schedule.places(stage)) {
            const Instruction& work = schedule.at(place);
            if (is_computation(work.kind))
                reads[{stage, work.kind, work.micro_batch}] = versions.read(place);
        }
    return reads;
}

/// Returns the sentence of a mistake whose F and B read the same versions or, if F and B
/// read the right versions but too early, the sentence of a mistake with the same order.
std::string cause_of_versions(const Judge& judge, const LeftSchedules& made) {
    const Reads reads = reads_of(made.left);
    if (reads == reads_of(made.right)) return cause_of_order(judge, made);
    return mistaken_schedule(judge, made, [&](const Schedule& mistaken) {
        return reads_of(mistaken) == reads;
    });
}

void ask_versions(Judge& judge, const LeftSchedules& made) {
    const std::string asked =
        made.run.name + ": F and B of batch b read version max(0, b - 1)";
    const WeightVersions versions(made.left);
    for (int stage = 0; stage < made.right.stages; ++stage)
        for (const Place place : made.left.places(stage)) {
            const Instruction& work = made.left.at(place);
            if (!is_computation(work.kind)) continue;
            const int batch = work.micro_batch / made.number("per_update");
            const int read = versions.read(place), newest = versions.newest(place);
            if (read == std::max(0, batch - 1) && read <= newest) continue;
            judge.ask(false, asked,
                      fmt::format("{}, of batch {}, reads version {}; the newest there "
                                  "is {}",
                                  made.left.where(place), batch, read, newest),
                      cause_of_versions(judge, made));
        }
    judge.ask(true, asked, "they do");
}

void ask_numbers(Judge& judge, const LeftSchedules& made) {
    ask_runnable(judge, made);
    ask_trained(judge, made, made.number("per_update"),
                ", by W(b + 1) = W(b) - f'(W(max(0, b - 1)))");
}

/// Judges memory, and whether the schedule is fast enough.
void ask_memory(Judge& judge, const LeftSchedules& made) {
    const LeftSchedules order = order_alone(made);
    ask_together(judge, order, 75);
    ask_held(judge, order);
}

void ask_time_of_order(Judge& judge, const LeftSchedules& made) {
    ask_time(judge, order_alone(made));
}

/// Returns a criterion's function that calls `ask` for each case.
auto each(void (*ask)(Judge&, const LeftSchedules&)) {
    return [ask](Judge& judge) {
        for (const Case& size : cases(judge))
            ask(judge, made_for(judge, size));
    };
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    const char* step, std::function<void(Judge&)> judge,
                    std::vector<std::string> needs = {},
                    std::vector<std::string> after = {}) {
    return {id,
            title,
            points,
            lesson_step("pipedream", step),
            std::move(judge),
            std::move(needs),
            std::move(after)};
}

}  // namespace

Assignment two_buffers_assignment() {
    const std::string work = "a10.1-work";
    return {
        "two-buffers",
        "A pipeline that does not stop",
        "PipeDream-2BW: schedules with two versions of the weights, their memory, and "
        "when to choose them.",
        {"two_buffers.hpp", "two_buffers.cpp", "adapters.cpp"},
        {criterion(work, "each micro-batch has one forward and one backward", 5,
                   "buffers", each(ask_work)),
         criterion("a10.1-updates", "the gradients of k micro-batches make one update", 5,
                   "buffers", each(ask_updates), {}, {work}),
         criterion("a10.1-versions", "batch b reads version max(0, b - 1)", 10, "buffers",
                   each(ask_versions), {}, {work}),
         criterion("a10.1-numbers", "it trains by gradients that are one update late", 5,
                   "buffers", each(ask_numbers),
                   {work, "a10.1-updates", "a10.1-versions"}),
         criterion("a10.1-memory", "stage s has min(p - s, m) micro-batches in flight",
                   10, "buffers", each(ask_memory), {work}),
         criterion("a10.1-time",
                   "no flush: all work is done after (m + p - 1)(t_f + t_b)", 20,
                   "endless", each(ask_time_of_order), {work}),
         criterion("a10.2-kept", "each version is freed after its last use", 15, "stash",
                   two_buffers::judge_kept),
         criterion("a10.3-bytes", "what a stage holds at most, by a formula", 10,
                   "buffers", two_buffers::judge_bytes),
         criterion("a10.4-allowed", "a choice that the setting allows", 5, "buffers",
                   two_buffers::judge_allowed),
         criterion("a10.4-fastest", "the fastest of those", 15, "buffers",
                   two_buffers::judge_fastest, {"a10.4-allowed"})},
        two_buffers_solutions};
}

}  // namespace lockstep::lessons
