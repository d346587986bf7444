#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/left_schedule.hpp"
#include "lessons/assignments/trained_stack.hpp"
#include "lessons/assignments/two_buffers/grading/memory.hpp"
#include "lessons/grader/judge.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/timer.hpp"
#include "src/pipeline/validate.hpp"
#include "src/pipeline/weight_versions.hpp"

namespace lockstep::lessons {

namespace {

using enum InstructionKind;
using two_buffers::drawn;

// The schedule, a10.1 of the handout: what it is asked for, and what it is held to. Work,
// memory and time are those of F and B alone, so that each mistake costs what names it.

struct Case {
    int stages = 1;
    int micro_batches = 1;
    int per_update = 1;

    std::string name() const {
        return fmt::format("p = {}, m = {}, k = {}", stages, micro_batches, per_update);
    }
    TaskRun run() const {
        return {name(),
                {{"two_buffers",
                  {},
                  {{"stages", stages},
                   {"micro_batches", micro_batches},
                   {"per_update", per_update}}}}};
    }
};

/// k = p - 1 and more, one stage, m = k, fewer micro-batches than stages, and many
/// stages; drawn anew for each grading.
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

/// A schedule's F and B alone, without versions: its order, which other mistakes leave as
/// it is.
struct Order {
    Schedule work;
    std::vector<std::vector<int>> positions;  ///< in the schedule, of each stage

    Place in_schedule(Place place) const {
        return {place.stage, positions[place.stage][place.position]};
    }
};

Order order_of(const Schedule& schedule) {
    Order order{schedule, {}};
    order.work.period.reset();
    for (int stage = 0; stage < schedule.stages; ++stage) {
        auto& list = order.work.work[stage];
        auto& positions = order.positions.emplace_back();
        list.clear();
        for (const Place place : schedule.places(stage)) {
            if (!is_computation(schedule.at(place).kind)) continue;
            list.push_back(schedule.at(place));
            list.back().weight_version = -1;
            positions.push_back(place.position);
        }
    }
    return order;
}

/// What the student and the reference made of a case.
struct Made {
    Case size;
    Schedule right, schedule;
    Order order = order_of(schedule);

    std::string name() const { return size.name(); }
};

/// Returns what was made, once it has the sizes asked for and no kinds of instructions
/// but F, B, R and U.
Made made_for(Judge& judge, const Case& size) {
    Made made{size, right_schedule(judge, size.run()), left_schedule(judge, size.run())};
    const auto is_other = [](const Instruction& each) {
        const bool work = each.kind == forward || each.kind == backward;
        const bool end = each.kind == reduce_gradients || each.kind == optimizer_step;
        return !(work || end) || each.together || each.estimated || each.mixes_weights;
    };
    const std::string asked = size.name() + ": F, B, R and U, and no other instructions";
    for (int stage = 0; stage < size.stages; ++stage)
        for (const Instruction& each : made.schedule.of(stage))
            if (is_other(each))
                judge.ask(false, asked,
                          fmt::format("stage {} has {}", stage, text_of(each)));
    judge.ask(true, asked, "no others");
    return made;
}

/// Asks whether the order can run.
void ask_runnable(Judge& judge, const Made& made) {
    const auto problem = find_problem(made.order.work);
    judge.ask(!problem,
              made.name() +
                  ": each stage has F and B of each micro-batch once, in an "
                  "order that can run",
              problem ? "it cannot run" : "it can run",
              problem ? "R and U not counted, " + problem->sentence : "");
}

/// Judges that there are schedules of the sizes asked for, and no F or B is missing in
/// them, which all else is asked of.
void judge_made(Judge& judge) {
    for (const Case& size : cases(judge)) {
        const Made made = made_for(judge, size);
        const Schedule right = order_of(made.right).work;
        const std::string asked = size.name() + ": F and B of each micro-batch";
        for (int stage = 0; stage < size.stages; ++stage)
            for (const Instruction& each : right.of(stage))
                if (std::ranges::count(made.order.work.of(stage), each) == 0)
                    judge.ask(false, asked,
                              fmt::format("stage {} has no {}", stage, text_of(each)));
        judge.ask(true, asked, "they are there");
    }
}

void judge_work(Judge& judge) {
    judge_made(judge);
    for (const Case& size : cases(judge)) {
        ask_made_alike(judge, size.run());
        ask_runnable(judge, made_for(judge, size));
    }
}

/// Compares a stage's list with its own F and B, in their order, with R and U behind
/// every k-th backward, each of its batch. Returns the first mistake, in a sentence, or
/// nothing.
std::string wrong_update(const Made& made, int stage) {
    const auto& list = made.schedule.of(stage);
    const int k = made.size.per_update;
    int backwards = 0;
    int due = 0;  // of R and U
    for (const Place place : made.schedule.places(stage)) {
        const Instruction& work = list[place.position];
        const std::string here = made.schedule.where(place);
        if (due > 0) {
            const Instruction wanted{due == 2 ? reduce_gradients : optimizer_step};
            if (work.kind != wanted.kind)
                return fmt::format(
                    "{}: {} is expected here, since {} backwards stand before it", here,
                    text_of(wanted), backwards);
            --due;
        } else if (!is_computation(work.kind)) {
            return fmt::format(
                "{}: backwards before it since the last update: {}; R and U are expected "
                "behind {}",
                here, backwards % k, k);
        } else if (work.kind == backward) {
            if (work.micro_batch / k != backwards / k)
                return fmt::format(
                    "{}: it is of batch {}, and batch {} has not had its update", here,
                    work.micro_batch / k, backwards / k);
            if (++backwards % k == 0) due = 2;
        }
    }
    if (due == 0) return "";
    return fmt::format(
        "stage {}: its list ends with {}; R and U are expected behind the last backward",
        stage, text_of(list.back()));
}

void judge_updates(Judge& judge) {
    judge.needs("a10.1-work", judge_made);
    for (const Case& size : cases(judge)) {
        const Made made = made_for(judge, size);
        for (int stage = 0; stage < size.stages; ++stage) {
            const std::string wrong = wrong_update(made, stage);
            judge.ask(
                wrong.empty(),
                fmt::format("{}: stage {}: R and U right behind the last backward of "
                            "each batch of {}, and nowhere else",
                            size.name(), stage, size.per_update),
                wrong.empty() ? "it is so" : "it is not so", wrong);
        }
    }
}

/// Returns what is said of a mistake whose schedule fits, if there is one.
std::string mistake_in(const Made& made,
                       const std::function<bool(const Schedule&)>& fits) {
    return Answers(two_buffers_solutions())
        .mistake(made.size.run(), "",
                 [&](const TaskResult& mistaken) { return fits(read_left(mistaken)); });
}

/// Returns what is said of a mistake that leaves the same order of F and B, which is not
/// the reference's.
std::string cause_of_order(const Made& made) {
    const auto fits = [&](const Schedule& other) {
        return order_of(other).work.work == made.order.work.work;
    };
    return fits(made.right) ? "" : mistake_in(made, fits);
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

/// Returns what is wrong with the version that an instruction reads, or nothing.
std::string wrong_version(const Made& made, const WeightVersions& versions, Place place,
                          int wanted) {
    const Instruction& work = made.schedule.at(place);
    const int read = versions.read(place), newest = versions.newest(place);
    if (read == wanted && read <= newest) return "";
    std::string wrong, cause;
    if (read == wanted) {
        wrong =
            fmt::format("version {} is not made yet: {} U stand before it", read, newest);
        cause = cause_of_order(made);
    } else {
        wrong = fmt::format("it reads version {}{}; batch {} reads version {}", read,
                            work.weight_version < 0 ? ", the newest there" : "",
                            work.micro_batch / made.size.per_update, wanted);
        cause = mistake_in(made, [&](const Schedule& other) {
            return reads_of(other) == reads_of(made.schedule);
        });
    }
    return fmt::format("{}: {}{}{}", made.schedule.where(place), wrong,
                       cause.empty() ? "" : ". In the whole schedule: ", cause);
}

void judge_versions(Judge& judge) {
    judge.needs("a10.1-work", judge_made);
    for (const Case& size : cases(judge)) {
        const Made made = made_for(judge, size);
        const Reads right = reads_of(made.right);
        const WeightVersions versions(made.schedule);
        const std::string asked =
            size.name() + ": F and B of batch b read version max(0, b - 1)";
        for (int stage = 0; stage < size.stages; ++stage)
            for (const int position : made.order.positions[stage]) {
                const Place place{stage, position};
                const Instruction& work = made.schedule.at(place);
                const std::string wrong =
                    wrong_version(made, versions, place,
                                  right.at({stage, work.kind, work.micro_batch}));
                if (!wrong.empty()) judge.ask(false, asked, "another version", wrong);
            }
        judge.ask(true, asked, "they do");
    }
}

void judge_numbers(Judge& judge) {
    constexpr int kMostStages = 5;
    for (const Case& size : cases(judge)) {
        if (size.stages > kMostStages) continue;
        const Made made = made_for(judge, size);
        const auto problem = find_problem(made.schedule);
        judge.ask(!problem, size.name() + ": it can run",
                  problem ? "it cannot" : "it can", problem ? problem->sentence : "");
        ask_trained(judge, size.name(), made.schedule, made.right, size.per_update,
                    ", by W(b + 1) = W(b) - f'(W(max(0, b - 1)))");
    }
}

/// Asks at each instruction of every stage for at most as many micro-batches in flight as
/// the reference has.
void ask_in_flight(Judge& judge, const Made& made) {
    const auto most = peak_holdings(made.right);
    const ScheduleMemory memory;
    for (int stage = 0; stage < made.size.stages; ++stage) {
        HeldByStage held(made.order.work, stage, memory);
        const std::string asked =
            fmt::format("{}: stage {}: at most {} micro-batches in flight", made.name(),
                        stage, most[stage].in_flight);
        int peak = 0;
        for (const Place place : made.order.work.places(stage)) {
            const int now = held.run({place.position, place.position + 1}).in_flight;
            peak = std::max(peak, now);
            if (now > most[stage].in_flight)
                judge.ask(false, asked,
                          fmt::format("{} at {}", now,
                                      made.schedule.where(made.order.in_schedule(place))),
                          cause_of_order(made));
        }
        judge.ask(true, asked, std::to_string(peak));
    }
}

void judge_memory(Judge& judge) {
    for (const Case& size : cases(judge)) {
        const Made made = made_for(judge, size);
        const Case batch{size.stages, size.per_update, size.per_update};
        const auto time_of = [](const Schedule& schedule) {
            return time_schedule(schedule, {{1, 1, 1}}).makespan;
        };
        const Picoseconds flushed = time_of(right_schedule(judge, batch.run())) *
                                    size.micro_batches / size.per_update;
        const Picoseconds most =
            std::max(flushed, Picoseconds{3} * size.micro_batches * size.stages * 3 / 4);
        const Picoseconds taken = time_of(made.order.work);
        judge.ask(
            taken <= most,
            fmt::format("{}: {} units of time at most with t_f = 1, t_b = 2, as one "
                        "micro-batch after another holds little, too",
                        size.name(), most),
            fmt::format("{} units of time", taken),
            taken <= most ? "" : cause_of_order(made));
        ask_in_flight(judge, made);
    }
}

/// Returns the first instruction for which the last stage has to wait once it has begun;
/// for nothing, if it is right.
std::string first_wait(const Made& made, const Timing& timing) {
    const auto& spans = timing.spans.back();
    for (int i = 1; i < std::ssize(spans); ++i)
        if (spans[i].start > spans[i - 1].end)
            return fmt::format(
                "{}: the last stage waits for it from {} to {}; it need not wait once it "
                "has begun",
                made.schedule.where(made.order.in_schedule({made.size.stages - 1, i})),
                spans[i - 1].end, spans[i].start);
    return "the last stage never waits, but its last backwards are late on their way "
           "back";
}

void judge_time(Judge& judge) {
    for (const Case& size : cases(judge)) {
        const Made made = made_for(judge, size);
        for (const Durations& each : {Durations{1, 1, 1}, {5, 1, 1}, {2, 4, 3}}) {
            const Timing timing = time_schedule(made.order.work, {each});
            const Picoseconds most = time_schedule(made.right, {each}).makespan;
            const bool fast = timing.makespan <= most;
            std::string cause = fast ? "" : cause_of_order(made);
            if (!fast && cause.empty()) cause = first_wait(made, timing);
            judge.ask(fast,
                      fmt::format("{}: all done after {} units of time with t_f = {}, "
                                  "t_b = {}",
                                  size.name(), most, each.of(forward), each.of(backward)),
                      fmt::format("{} units of time", timing.makespan), cause);
        }
    }
}

}  // namespace

Assignment two_buffers_assignment() {
    const auto criterion = [](const char* id, const char* title, int points,
                              const char* step, void (*judged)(Judge&),
                              std::vector<std::string> needs = {}) {
        return Criterion{id,     title,           points, lesson_step("pipedream", step),
                         judged, std::move(needs)};
    };
    return {
        "two-buffers",
        "A pipeline that does not stop",
        "PipeDream-2BW: schedules with two versions of the weights, their memory, and "
        "when to choose them.",
        {"two_buffers.hpp", "two_buffers.cpp", "adapters.cpp"},
        {criterion("a10.1-work", "each micro-batch goes forward and back once", 5,
                   "buffers", judge_work),
         criterion("a10.1-updates", "the gradients of k micro-batches make one update", 5,
                   "buffers", judge_updates),
         criterion("a10.1-versions", "batch b reads version max(0, b - 1)", 10, "buffers",
                   judge_versions),
         criterion("a10.1-numbers", "it trains by gradients that are one update late", 5,
                   "buffers", judge_numbers,
                   {"a10.1-work", "a10.1-updates", "a10.1-versions"}),
         criterion("a10.1-memory", "stage s has min(p - s, m) micro-batches in flight",
                   10, "buffers", judge_memory, {"a10.1-work"}),
         criterion("a10.1-time", "it never stops: done after (m + p - 1)(t_f + t_b)", 20,
                   "endless", judge_time, {"a10.1-work"}),
         criterion("a10.2-kept", "each version goes when nobody needs it any more", 15,
                   "stash", two_buffers::judge_kept),
         criterion("a10.3-bytes", "what a stage holds at most, by a formula", 10,
                   "buffers", two_buffers::judge_bytes),
         criterion("a10.4-allowed", "a choice that the setting allows", 5, "buffers",
                   two_buffers::judge_allowed),
         criterion("a10.4-fastest", "the fastest of those", 15, "buffers",
                   two_buffers::judge_fastest, {"a10.4-allowed"})},
        two_buffers_solutions};
}

}  // namespace lockstep::lessons
