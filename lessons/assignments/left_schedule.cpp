#include "lessons/assignments/left_schedule.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/core/require.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/timer.hpp"
#include "src/pipeline/validate.hpp"

namespace lockstep::lessons {

using enum InstructionKind;

bool LeftSchedules::has_halves() const {
    return std::ranges::count(right.of_stage(0), backward_input, &Instruction::kind) > 0;
}

// Reading the outputs.

namespace {

const std::string& text_left(Judge& judge, const TaskResult& result,
                             const std::string& name) {
    const auto& texts = result.ranks.at(0).texts;
    const auto text = texts.find(name);
    if (text == texts.end()) judge.ask(false, "a schedule", "none");
    return text->second;
}

Schedule read(const std::string& text) {
    Schedule schedule = read_schedule_json(text, "schedule").schedule;
    schedule.file.clear();
    for (auto& list : schedule.work)
        for (Instruction& each : list)
            each.line = 0;
    return schedule;
}

/// Reads a schedule of the reference, or of a mistake.
Schedule read_right(const TaskResult& result) {
    return read(result.ranks.at(0).texts.at("schedule"));
}

Schedule read_left(Judge& judge, const TaskRun& run) {
    const std::string& text = text_left(judge, judge.run(run), "schedule");
    Schedule schedule;
    try {
        schedule = read(text);
    } catch (const UsageError& error) {
        judge.ask(false, run.name + ": a schedule", "", error.what());
    }
    if (const auto problem = find_bad_number(schedule))
        judge.ask(false, run.name + ": a schedule", "", problem->sentence);
    return schedule;
}

void ask_sizes(Judge& judge, const LeftSchedules& made) {
    const auto& [run, left, right] = made;
    judge.ask(left.stages == right.stages && left.micro_batches == right.micro_batches &&
                  left.chunks == right.chunks,
              run.name + ": a schedule of these sizes, with 1 chunk on each stage",
              fmt::format("p = {}, m = {}, chunks: {}", left.stages, left.micro_batches,
                          left.chunks));
    for (int stage = 0; stage < right.stages; ++stage)
        if (left.parts[stage] != right.parts[stage])
            judge.ask(false, run.name + ": part s on stage s",
                      fmt::format("stage {} holds part {}", stage, left.part(stage, 0)));
}

/// Judges the instructions: the reference must have the same kinds, and none may begin
/// together with another. If the reference names no versions of weights, none may.
void ask_kinds(Judge& judge, const LeftSchedules& made) {
    std::set<InstructionKind> kinds;
    std::set<std::string> texts;
    for (const Instruction& each : made.right.of_stage(0)) {
        kinds.insert(each.kind);
        texts.insert(text_of(Instruction{each.kind}).substr(0, 1));
    }
    const bool has_versions = made.right.of_stage(0).front().weight_version >= 0;
    const std::string asked = fmt::format("{}: {} and no other instructions",
                                          made.run.name, fmt::join(texts, ", "));
    for (int stage = 0; stage < made.right.stages; ++stage)
        for (const Instruction& each : made.left.of_stage(stage)) {
            Instruction plain{each.kind, each.micro_batch};
            if (has_versions) plain.weight_version = each.weight_version;
            if (!kinds.contains(each.kind) || each != plain)
                judge.ask(
                    false, asked, fmt::format("stage {} has {}", stage, text_of(each)),
                    std::string("all instructions begin one after another; ") +
                        (has_versions ? "" : "none names a version of the weights; ") +
                        "B is a whole backward, I and W are its halves; leave out "
                        "messages: they are added when the schedule runs");
        }
    judge.ask(true, asked, "no others");
}

}  // namespace

LeftSchedules left_schedules(Judge& judge, const TaskRun& run) {
    LeftSchedules made{run, read_left(judge, run), read_right(judge.right(run))};
    ask_sizes(judge, made);
    ask_kinds(judge, made);
    return made;
}

// The order of work, and whether a schedule can run.

namespace {

Schedule order_of(Schedule schedule) {
    schedule.period.reset();  // its positions are in the whole list
    for (auto& list : schedule.work) {
        std::erase_if(list,
                      [](const Instruction& each) { return !is_computation(each.kind); });
        for (Instruction& each : list)
            each.weight_version = -1;
    }
    return schedule;
}

}  // namespace

LeftSchedules order_alone(const LeftSchedules& made) {
    return {made.run, order_of(made.left), order_of(made.right)};
}

std::string mistaken_schedule(const Judge& judge, const LeftSchedules& made,
                              const std::function<bool(const Schedule&)>& fits) {
    return judge.mistake(
        made.run, [&](const TaskResult& mistaken) { return fits(read_right(mistaken)); });
}

std::string cause_of_order(const Judge& judge, const LeftSchedules& made) {
    const auto [run, left, right] = order_alone(made);
    if (left.work == right.work) return "";
    return mistaken_schedule(judge, made, [&, &order = left](const Schedule& other) {
        return order_of(other).work == order.work;
    });
}

void ask_made_alike(Judge& judge, const LeftSchedules& made) {
    const TaskResult& result = judge.run(made.run);
    const bool same =
        text_left(judge, result, "schedule") == text_left(judge, result, "again");
    judge.ask(same, made.run.name + ": the same schedule when asked again",
              same ? "the same" : "another");
}

void ask_runnable(Judge& judge, const LeftSchedules& made, const std::string& counted) {
    const std::string asked = made.run.name + ": it can run";
    if (const auto problem = find_problem(made.left)) {
        const std::string cause = cause_of_order(judge, made);
        judge.ask(false, asked, "it cannot",
                  counted + problem->sentence + (cause.empty() ? "" : ". " + cause));
    }
    judge.ask(true, asked, "it can");
}

// How many micro-batches stages hold, and how long schedules take.

namespace {

/// Calls judge.ask. The explanation of a wrong answer is the sentence of the mistake that
/// outputs the same order or, if there is none, the result of `otherwise`.
void ask_of_order(Judge& judge, const LeftSchedules& made, bool answer,
                  const std::string& asked, const std::string& measured,
                  const std::function<std::string()>& otherwise) {
    std::string cause = answer ? "" : cause_of_order(judge, made);
    if (!answer && cause.empty()) cause = otherwise();
    judge.ask(answer, asked, measured, cause);
}

/// A stage's maximum of held micro-batches, and the forward that reaches this maximum.
struct Peak {
    int held = 0;
    Instruction from;
};

Peak peak_of(const std::vector<Instruction>& list) {
    Peak peak;
    int held = 0;
    for (const Instruction& work : list) {
        if (work.kind == forward && ++held > peak.held) peak = {held, work};
        if (work.kind == backward || work.kind == backward_weight) --held;
    }
    return peak;
}

}  // namespace

void ask_held(Judge& judge, const LeftSchedules& made) {
    const int limit =
        made.run.ranks.front().numbers.contains("limit") ? made.number("limit") : 0;
    for (int stage = 0; stage < made.right.stages; ++stage) {
        const int most = limit > 0 ? limit : peak_of(made.right.of_stage(stage)).held;
        const Peak peak = peak_of(made.left.of_stage(stage));
        const auto otherwise = [&] {
            return fmt::format(
                "stage {} begins {} while it holds {}: run the backward of one of them "
                "first",
                stage, text_of(peak.from), peak.held - 1);
        };
        ask_of_order(
            judge, made, peak.held <= most,
            fmt::format("{}: stage {}: at most {} micro-batches {}", made.run.name, stage,
                        most, made.has_halves() ? "held until their W" : "in flight"),
            std::to_string(peak.held), otherwise);
    }
}

namespace {

/// Returns a sentence about the first work that begins later than in the reference.
std::string first_late(const LeftSchedules& made, const Timing& left,
                       const Timing& right) {
    std::string said;
    Picoseconds first = right.makespan;
    for (int stage = 0; stage < made.right.stages; ++stage)
        for (const Place place : made.right.places(stage)) {
            const Instruction& work = made.right.at(place);
            if (!is_computation(work.kind)) continue;
            const auto& list = made.left.of_stage(stage);
            const auto there = std::ranges::find(list, work) - list.begin();
            const Picoseconds due = right.span(place).start;
            const Picoseconds begun = left.spans[stage][there].start;
            if (begun <= due || due >= first) continue;
            first = due;
            said = fmt::format(
                "stage {} begins {} at {}, though all that it needs is there at {}",
                stage, text_of(work), begun, due);
        }
    return said;
}

std::string text_of(const Durations& each, bool halves) {
    if (halves) return "t_f = t_i = t_w = 1";
    return fmt::format("t_f = {}, t_b = {}", each.of_kind(forward),
                       each.of_kind(backward));
}

}  // namespace

void ask_overlap(Judge& judge, const LeftSchedules& made, Picoseconds most) {
    const Durations each{1, 1, 1};
    const bool halves = made.has_halves();
    const Timing left = time_schedule(made.left, {each});
    const Picoseconds taken = halves ? left.longest : left.makespan;
    ask_of_order(
        judge, made, taken <= most,
        fmt::format("{}: at most {} units of time{} with {} (otherwise one micro-batch "
                    "after another would pass)",
                    made.run.name, most,
                    halves ? " from a stage's first instruction to its last" : "",
                    text_of(each, halves)),
        fmt::format("{} units of time", taken),
        [&] { return first_late(made, left, time_schedule(made.right, {each})); });
}

void ask_time(Judge& judge, const LeftSchedules& made) {
    const bool halves = made.has_halves();
    std::vector<Durations> durations{{1, 1, 1}};
    if (!halves) durations.insert(durations.end(), {{5, 1, 1}, {2, 4, 3}});
    for (const Durations& each : durations) {
        const Timing left = time_schedule(made.left, {each});
        const Timing right = time_schedule(made.right, {each});
        const Picoseconds taken = halves ? left.bubble() : left.makespan;
        const Picoseconds least = halves ? right.bubble() : right.makespan;
        const auto otherwise = [&]() -> std::string {
            if (taken < least) return "less time takes more memory than is allowed";
            return first_late(made, left, right);
        };
        ask_of_order(
            judge, made, taken == least,
            fmt::format("{}: {} with {}: {} units of time", made.run.name,
                        halves ? "bubble" : "time", text_of(each, halves), least),
            fmt::format("{} units of time", taken), otherwise);
    }
}

}  // namespace lockstep::lessons
