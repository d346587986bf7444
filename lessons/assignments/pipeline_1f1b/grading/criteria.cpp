#include "lessons/assignments/pipeline_1f1b/grading/criteria.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lessons/assignments/pipeline_1f1b/grading/one_step.hpp"
#include "lessons/assignments/pipeline_1f1b/grading/parts.hpp"
#include "lessons/grader/judge.hpp"
#include "src/core/require.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/timer.hpp"
#include "src/pipeline/validate.hpp"

namespace lockstep::lessons {

namespace {

using enum InstructionKind;
using namespace schedule_parts;

const std::string& text_left(Judge& judge, const TaskResult& result,
                             const std::string& name) {
    const auto& texts = result.ranks.at(0).texts;
    const auto text = texts.find(name);
    if (text == texts.end()) judge.ask(false, "a schedule", "none");
    return text->second;
}

const TaskResult& run(Judge& judge, const Part& part, const Case& size) {
    RankTask task{part.task,
                  {},
                  {{"stages", size.stages},
                   {"micro_batches", size.micro_batches},
                   {"limit", size.limit}}};
    return judge.run({size.name(), {task}});
}

Schedule read(Judge& judge, const std::string& text, const Case& size) {
    try {
        Schedule schedule = read_schedule_json(text, "schedule");
        // Sentences name stage and instruction, not lines that nobody has seen.
        schedule.file.clear();
        for (auto& list : schedule.work)
            for (Instruction& each : list)
                each.line = 0;
        return schedule;
    } catch (const UsageError& error) {
        judge.ask(false, size.name() + ": a schedule", "", error.what());
        throw;
    }
}

const char* work_of(const Part& part) {
    return part.halves ? "F, I and W" : "F and B";
}

/// Of every criterion: memory and time are bounds of this work, not of another.
void ask_kinds(Judge& judge, const Part& part, const Case& size,
               const Schedule& schedule) {
    const auto is_other = [&](const Instruction& each) {
        const bool half = each.kind == backward_input || each.kind == backward_weight;
        const bool work =
            each.kind == forward || (part.halves ? half : each.kind == backward);
        return !work && each.kind != reduce_gradients && each.kind != optimizer_step;
    };
    const std::string asked = fmt::format(
        "{}: {}, then R and U, and no other instructions", size.name(), work_of(part));
    for (int stage = 0; stage < size.stages; ++stage) {
        const std::vector<Instruction>& list = schedule.of(stage);
        const auto other = std::ranges::find_if(list, is_other);
        if (other != list.end())
            judge.ask(false, asked,
                      fmt::format("stage {} has {}", stage, text_of(*other)));
    }
    judge.ask(true, asked, "no others");
}

/// What was made, where it has the sizes and the kinds of work asked for and can run.
Schedule schedule_of(Judge& judge, const Part& part, const Case& size) {
    const TaskResult& result = run(judge, part, size);
    Schedule schedule = read(judge, text_left(judge, result, "schedule"), size);
    judge.ask(schedule.stages == size.stages &&
                  schedule.micro_batches == size.micro_batches && schedule.chunks == 1,
              size.name() + ": a schedule of these sizes, 1 chunk a stage",
              fmt::format("p = {}, m = {}, chunks: {}", schedule.stages,
                          schedule.micro_batches, schedule.chunks));
    int same = 0;
    while (same < size.stages && schedule.part(same, 0) == same)
        ++same;
    judge.ask(same == size.stages, size.name() + ": part s on stage s",
              same == size.stages
                  ? "it is so"
                  : fmt::format("stage {} holds part {}", same, schedule.part(same, 0)));
    ask_kinds(judge, part, size, schedule);
    const auto problem = find_problem(schedule);
    judge.ask(!problem, size.name() + ": it can run", problem ? "it cannot" : "it can",
              problem ? problem->sentence : "");
    return schedule;
}

/// The work once for each micro-batch, as valid schedules of its kinds have it; and then
/// the end of a step, and nothing else.
void ask_work(Judge& judge, const Part& part, const Case& size,
              const Schedule& schedule) {
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const std::vector<Instruction>& list = schedule.of(stage);
        const std::size_t work =
            (part.halves ? 3 : 2) * static_cast<std::size_t>(size.micro_batches);
        judge.ask(list.size() == work + 2 && list[work].kind == reduce_gradients &&
                      list[work + 1].kind == optimizer_step,
                  fmt::format("{}: stage {}: {} of each micro-batch, then R and U, "
                              "and nothing else",
                              size.name(), stage, work_of(part)),
                  fmt::format("{} instructions{}", list.size(),
                              list.empty() ? "" : ", the last " + text_of(list.back())));
    }
}

void ask_values(Judge& judge, const Case& size, const Schedule& schedule) {
    StepResult left;
    try {
        left = step_by(schedule);
    } catch (const UsageError& error) {
        judge.ask(false, size.name() + ": it trains a stack of layers", "", error.what());
    }
    for (const auto& [name, expected] : step_alone(size.stages, size.micro_batches))
        judge.close(size.name() + ": " + name, left.at(name), expected);
}

void judge_values(Judge& judge, const Part& part) {
    constexpr int kMostStages = 5;
    for (const Case& size : part.cases(judge)) {
        const TaskResult& result = run(judge, part, size);
        const Schedule schedule = schedule_of(judge, part, size);
        const bool same =
            text_left(judge, result, "schedule") == text_left(judge, result, "again");
        judge.ask(same, size.name() + ": the same schedule when asked again",
                  same ? "the same" : "another");
        ask_work(judge, part, size, schedule);
        if (size.stages <= kMostStages) ask_values(judge, size, schedule);
    }
}

/// One micro-batch after another holds little, too: memory earns nothing where whole
/// backwards take more than three quarters of that time, and more than the least, or
/// halves more than twice the least.
void ask_overlap(Judge& judge, const Part& part, const Case& size,
                 const Schedule& schedule) {
    const int work = 3 * size.micro_batches;  // units of time, of each stage
    const int most = part.halves
                         ? 2 * (work + part.least(size))
                         : std::max(3 * part.least(size), work * size.stages * 3 / 4);
    const Timing timing = time_schedule(schedule, {{1, 1, 1}});
    const Picoseconds taken = part.halves ? timing.longest : timing.makespan;
    judge.ask(
        taken <= most,
        fmt::format("{}: {} units of time at most{} with t_f = t_i = t_w = 1, as "
                    "one micro-batch after another holds little, too",
                    size.name(), most,
                    part.halves ? " from a stage's first instruction to its last" : ""),
        fmt::format("{} units of time", taken));
}

void judge_memory(Judge& judge, const Part& part) {
    for (const Case& size : part.cases(judge)) {
        const Schedule schedule = schedule_of(judge, part, size);
        ask_overlap(judge, part, size, schedule);
        const std::vector<Holdings> peaks = peak_holdings(schedule);
        for (int stage = 0; stage < size.stages; ++stage) {
            const Holdings& peak = peaks[stage];
            const int held =
                part.halves ? static_cast<int>(std::lround(peak.memory)) : peak.in_flight;
            const int most = part.most_held(size, stage);
            judge.ask(held <= most,
                      fmt::format("{}: stage {}: at most {} micro-batches {}",
                                  size.name(), stage, most, part.held),
                      std::to_string(held));
        }
    }
}

/// What the table says, for these durations; the names are the targets'. Less is only to
/// be had by holding more than the limit.
void ask_time(Judge& judge, const Part& part, const Case& size, const Timing& timing,
              const StageDurations& each) {
    const Picoseconds backward_time = each.backward_input + each.backward_weight;
    const Picoseconds measured = part.halves ? timing.bubble() : timing.makespan;
    const Picoseconds least =
        part.least(size) * (part.halves ? each.forward : each.forward + backward_time);
    const std::string name =
        part.halves ? fmt::format("{}: {}: bubble", part.id, size.name())
                    : fmt::format("{}: {}: time with t_f = {}, t_b = {}", part.id,
                                  size.name(), each.forward, backward_time);
    judge.as_reference(name, "units of time", measured, {100, 0});
    if (measured < least)
        judge.ask(
            false,
            fmt::format("{}: {} units of time, the least under the limit", name, least),
            fmt::format("{} units of time", measured),
            "a stage holds more than the limit: see " + part.id + "-memory");
}

/// The bubble of backward in halves, which all take the same time; else the whole, with
/// forwards that are longer than backwards, and shorter.
void judge_time(Judge& judge, const Part& part) {
    const std::vector<StageDurations> halves{{1, 1, 1}};
    const std::vector<StageDurations> whole{{1, 1, 1}, {5, 1, 1}, {2, 4, 3}};
    for (const Case& size : part.cases(judge)) {
        const Schedule schedule = schedule_of(judge, part, size);
        for (const StageDurations& each : part.halves ? halves : whole)
            ask_time(judge, part, size, time_schedule(schedule, {each}), each);
    }
}

Criterion criterion(const Part& part, const std::string& what, const std::string& title,
                    int points, int step, void (*judged)(Judge&, const Part&)) {
    return {part.id + "-" + what, title, points,
            fmt::format("pipeline-1f1b, step {}", step),
            [&part, judged](Judge& judge) { judged(judge, part); }};
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
         criterion(kSplit, "values", "split_backward computes what one device does", 5, 6,
                   judge_values),
         criterion(kSplit, "memory", "split_backward keeps to the limit", 10, 6,
                   judge_memory),
         criterion(kSplit, "bubble",
                   "split_backward fills the bubble as far as memory "
                   "allows",
                   15, 6, judge_time)}};
}

}  // namespace lockstep::lessons
