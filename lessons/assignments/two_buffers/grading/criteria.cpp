#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/left_schedule.hpp"
#include "lessons/assignments/needs.hpp"
#include "lessons/assignments/trained_stack.hpp"
#include "lessons/assignments/two_buffers/grading/memory.hpp"
#include "lessons/grader/judge.hpp"
#include "src/core/require.hpp"
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
    AskedSchedule asked() const { return {name(), stages, micro_batches}; }
    /// The version that a micro-batch reads on all stages.
    int version(int micro_batch) const {
        return std::max(0, micro_batch / per_update - 1);
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

const TaskResult& run(Judge& judge, const Case& size) {
    RankTask task{"two_buffers",
                  {},
                  {{"stages", size.stages},
                   {"micro_batches", size.micro_batches},
                   {"per_update", size.per_update}}};
    return judge.run({size.name(), {task}});
}

/// Returns the schedule that was made, once it has the sizes asked for and no kinds of
/// instructions but F, B, R and U.
Schedule schedule_of(Judge& judge, const Case& size) {
    Schedule schedule = left_schedule(judge, run(judge, size), size.asked());
    const auto is_other = [](const Instruction& each) {
        const bool work = each.kind == forward || each.kind == backward;
        const bool end = each.kind == reduce_gradients || each.kind == optimizer_step;
        return !(work || end) || each.together || each.estimated || each.mixes_weights;
    };
    const std::string asked = size.name() + ": F, B, R and U, and no other instructions";
    for (int stage = 0; stage < size.stages; ++stage) {
        const auto& list = schedule.of(stage);
        const auto other = std::ranges::find_if(list, is_other);
        if (other != list.end())
            judge.ask(false, asked,
                      fmt::format("stage {} has {}", stage, text_of(*other)));
    }
    judge.ask(true, asked, "no others");
    return schedule;
}

/// A schedule's F and B alone, without versions: its order, which other mistakes leave as
/// it is.
struct Order {
    Schedule work;
    std::vector<std::vector<int>> positions;  ///< in the schedule, of each stage
};

Order order_of(const Schedule& schedule) {
    Order order{schedule, {}};
    order.work.period.reset();
    for (int stage = 0; stage < schedule.stages; ++stage) {
        auto& list = order.work.work[stage];
        auto& positions = order.positions.emplace_back();
        list.clear();
        for (const Place place : schedule.places(stage)) {
            Instruction work = schedule.at(place);
            if (!is_computation(work.kind)) continue;
            work.weight_version = -1;
            list.push_back(work);
            positions.push_back(place.position);
        }
    }
    return order;
}

/// Returns the order, once it can run.
Order runnable_order(Judge& judge, const Case& size, const Schedule& schedule) {
    Order order = order_of(schedule);
    const auto problem = find_problem(order.work);
    judge.ask(!problem,
              size.name() +
                  ": each stage has F and B of each micro-batch once, in an "
                  "order that can run",
              problem ? "it cannot run" : "it can run",
              problem ? "R and U not counted, " + problem->sentence : "");
    return order;
}

/// Judges that there are schedules of the sizes asked for, and no F or B is missing in
/// them, which all else is asked of.
void judge_made(Judge& judge) {
    for (const Case& size : cases(judge)) {
        const Schedule schedule = schedule_of(judge, size);
        const std::string asked = size.name() + ": F and B of each micro-batch";
        for (int stage = 0; stage < size.stages; ++stage)
            for (int i = 0; i < size.micro_batches; ++i)
                for (const InstructionKind kind : {forward, backward}) {
                    const auto& list = schedule.of(stage);
                    const bool there = std::ranges::any_of(list, [&](const auto& each) {
                        return each.kind == kind && each.micro_batch == i;
                    });
                    if (!there)
                        judge.ask(false, asked,
                                  fmt::format("stage {} has no {}", stage,
                                              text_of(Instruction{kind, i})));
                }
        judge.ask(true, asked, "they are there");
    }
}

void judge_work(Judge& judge) {
    judge_made(judge);
    for (const Case& size : cases(judge)) {
        const TaskResult& result = run(judge, size);
        const Schedule schedule = schedule_of(judge, size);
        ask_made_alike(judge, result, size.asked());
        runnable_order(judge, size, schedule);
    }
}

/// Follows a stage's list: R and U stand behind every k-th backward, of one batch alone,
/// and nowhere else. Returns the first mistake, in a sentence, or nothing.
std::string wrong_update(const Case& size, const Schedule& schedule, int stage) {
    const auto& list = schedule.of(stage);
    int backwards = 0;
    int updates = 0;
    int due = 0;  // of R and U, which stand behind a batch's last backward
    for (const Place place : schedule.places(stage)) {
        const Instruction& work = list[place.position];
        const InstructionKind wanted = due == 2 ? reduce_gradients : optimizer_step;
        if (due > 0 && work.kind != wanted)
            return fmt::format(
                "{}: {} is expected here, since {} backwards stand before it",
                schedule.where(place), due == 2 ? "R" : "U", backwards);
        if (due > 0) {
            --due;
            updates += work.kind == optimizer_step;
            continue;
        }
        if (!is_computation(work.kind))
            return fmt::format(
                "{}: backwards before it since the last update: {}; R and U are expected "
                "behind {}",
                schedule.where(place), backwards - updates * size.per_update,
                size.per_update);
        if (work.kind != backward) continue;
        if (work.micro_batch / size.per_update != updates)
            return fmt::format(
                "{}: it is of batch {}, and batch {} has not had its update",
                schedule.where(place), work.micro_batch / size.per_update, updates);
        if (++backwards % size.per_update == 0) due = 2;
    }
    if (due == 0) return "";
    return fmt::format(
        "stage {}: its list ends with {}; R and U are expected behind the "
        "last backward",
        stage, text_of(list.back()));
}

void judge_updates(Judge& judge) {
    needs(judge, "a10.1-work", judge_made);
    for (const Case& size : cases(judge)) {
        const Schedule schedule = schedule_of(judge, size);
        for (int stage = 0; stage < size.stages; ++stage) {
            const std::string wrong = wrong_update(size, schedule, stage);
            judge.ask(
                wrong.empty(),
                fmt::format("{}: stage {}: R and U right behind the last backward of "
                            "each batch of {}, and nowhere else",
                            size.name(), stage, size.per_update),
                wrong.empty() ? "it is so" : "it is not so", wrong);
        }
    }
}

/// Returns what is wrong with the version that an instruction reads, or nothing.
std::string wrong_version(const Case& size, const Schedule& schedule,
                          const WeightVersions& versions, Place place) {
    const Instruction& work = schedule.at(place);
    const int wanted = size.version(work.micro_batch);
    const int read = versions.read(place);
    if (read != wanted)
        return fmt::format("{}: it reads version {}{}; batch {} reads version {}",
                           schedule.where(place), read,
                           work.weight_version < 0 ? ", the newest there" : "",
                           work.micro_batch / size.per_update, wanted);
    if (read <= versions.newest(place)) return "";
    return fmt::format("{}: version {} is not made yet: {} U stand before it",
                       schedule.where(place), read, versions.newest(place));
}

/// A wrong rule by which all F and B may read, and what it is.
struct ReadingRule {
    const char* sentence;
    std::function<int(const Case&, const Instruction&, Place, int newest)> version;
};

std::vector<ReadingRule> wrong_rules() {
    using Work = const Instruction&;
    const auto batch = [](const Case& size, Work work) {
        return work.micro_batch / size.per_update;
    };
    return {
        {"all F and B read the newest version that their stage has",
         [](const Case&, Work, Place, int newest) { return newest; }},
        {"batch b reads version b, as with a flush",
         [=](const Case& size, Work work, Place, int) { return batch(size, work); }},
        {"all batches from 2 on read the version before the last: two updates late",
         [=](const Case& size, Work work, Place, int) {
             return std::max(0, batch(size, work) - 2);
         }},
        {"batch 1 reads version 1; it begins before the update of batch 0 is done",
         [=](const Case& size, Work work, Place, int) {
             return std::min(batch(size, work), std::max(1, batch(size, work) - 1));
         }},
        {"a backward reads the newest version; it must read what its forward has read",
         [](const Case& size, Work work, Place, int newest) {
             return work.kind == backward ? newest : size.version(work.micro_batch);
         }},
        {"the last stage reads the newest version that it has; all stages read the "
         "same",
         [](const Case& size, Work work, Place place, int newest) {
             const bool last = place.stage + 1 == size.stages;
             return last ? newest : size.version(work.micro_batch);
         }},
        {"that is PipeDream's rule, with an update behind every micro-batch",
         [](const Case& size, Work work, Place place, int) {
             return std::max(0, work.micro_batch - (size.stages - place.stage - 1));
         }},
        {"batches of p micro-batches would read so; they have k",
         [](const Case& size, Work work, Place, int) {
             return std::max(0, work.micro_batch / size.stages - 1);
         }}};
}

/// Says by which wrong rule all F and B read, if there is one.
std::string cause_of_versions(const Case& size, const Schedule& schedule,
                              const WeightVersions& versions) {
    const auto reads_by = [&](const ReadingRule& rule) {
        for (int stage = 0; stage < size.stages; ++stage)
            for (const Place place : schedule.places(stage)) {
                const Instruction& work = schedule.at(place);
                if (is_computation(work.kind) &&
                    versions.read(place) !=
                        rule.version(size, work, place, versions.newest(place)))
                    return false;
            }
        return true;
    };
    for (const ReadingRule& rule : wrong_rules())
        if (reads_by(rule))
            return std::string(". In the whole schedule: ") + rule.sentence;
    return "";
}

void judge_versions(Judge& judge) {
    needs(judge, "a10.1-work", judge_made);
    for (const Case& size : cases(judge)) {
        const Schedule schedule = schedule_of(judge, size);
        const WeightVersions versions(schedule);
        const std::string asked =
            size.name() + ": F and B of batch b read version max(0, b - 1)";
        for (int stage = 0; stage < size.stages; ++stage)
            for (const Place place : schedule.places(stage)) {
                if (!is_computation(schedule.at(place).kind)) continue;
                const std::string wrong = wrong_version(size, schedule, versions, place);
                if (!wrong.empty())
                    judge.ask(false, asked, "another version",
                              wrong + cause_of_versions(size, schedule, versions));
            }
        judge.ask(true, asked, "they do");
    }
}

void judge_numbers(Judge& judge) {
    constexpr int kMostStages = 5;
    needs(judge, "a10.1-work", judge_work);
    needs(judge, "a10.1-updates", judge_updates);
    needs(judge, "a10.1-versions", judge_versions);
    for (const Case& size : cases(judge)) {
        if (size.stages > kMostStages) continue;
        const Schedule schedule = schedule_of(judge, size);
        const auto problem = find_problem(schedule);
        judge.ask(!problem, size.name() + ": it can run",
                  problem ? "it cannot" : "it can", problem ? problem->sentence : "");
        TrainedStack left;
        try {
            left = train_by(schedule, size.per_update);
        } catch (const UsageError& error) {
            judge.ask(false, size.name() + ": it trains a stack of layers", "",
                      error.what());
        }
        for (const auto& [name, expected] :
             train_alone(size.stages, size.micro_batches, size.per_update))
            judge.close(fmt::format("{}: {}, by W(b + 1) = W(b) - f'(W(max(0, b - 1)))",
                                    size.name(), name),
                        left.at(name), expected);
    }
}

/// The least time of all orders: first and last stage are a way apart.
Picoseconds least_time(const Case& size, const Durations& each) {
    return (size.micro_batches + size.stages - 1) * each.of(forward) +
           (size.micro_batches + size.stages - 1) * each.of(backward);
}

/// Returns the time if every batch came to its end before the next.
Picoseconds time_with_flushes(const Case& size, const Durations& each) {
    return size.micro_batches / size.per_update *
           least_time({size.stages, size.per_update, size.per_update}, each);
}

int most_in_flight(const Case& size, int stage) {
    return std::min(size.stages - stage, size.micro_batches);
}

/// Says how many micro-batches a stage has in flight at most, and behind which
/// instruction there are more than it may have, if there are.
struct InFlight {
    int peak = 0;
    Place too_many{};
    int there = 0;
};

InFlight in_flight(const Case& size, const Order& order, int stage) {
    const ScheduleMemory memory;
    HeldByStage held(order.work, stage, memory);
    InFlight found;
    for (int i = 0; i < static_cast<int>(order.positions[stage].size()); ++i) {
        const int now = held.run({i, i + 1}).in_flight;
        found.peak = std::max(found.peak, now);
        if (found.too_many || now <= most_in_flight(size, stage)) continue;
        found.too_many = {stage, order.positions[stage][i]};
        found.there = now;
    }
    return found;
}

/// Says by which wrong rule stages go ahead, if there is one.
std::string cause_of_in_flight(const Case& size, const std::vector<InFlight>& all) {
    const auto is = [&](const std::function<int(int)>& rule) {
        for (int stage = 0; stage < size.stages; ++stage)
            if (all[stage].peak != std::min(rule(stage), size.micro_batches))
                return false;
        return true;
    };
    if (is([&](int stage) { return size.stages - stage + 1; }))
        return "every stage goes one forward too far ahead";
    if (is([&](int) { return size.stages; }))
        return "every stage goes as far ahead as stage 0";
    if (is([&](int) { return size.per_update; }))
        return "every stage does all forwards of a batch first";
    if (is([&](int) { return size.micro_batches; }))
        return "every stage does all forwards first";
    return "";
}

/// Asks at each instruction of every stage how many micro-batches are in flight.
void ask_in_flight(Judge& judge, const Case& size, const Schedule& schedule,
                   const Order& order) {
    std::vector<InFlight> all;
    all.reserve(static_cast<std::size_t>(size.stages));
    for (int stage = 0; stage < size.stages; ++stage)
        all.push_back(in_flight(size, order, stage));
    for (int stage = 0; stage < size.stages; ++stage) {
        const InFlight& here = all[stage];
        const std::string asked =
            fmt::format("{}: stage {}: at most {} micro-batches in flight", size.name(),
                        stage, most_in_flight(size, stage));
        if (here.too_many)
            judge.ask(false, asked,
                      fmt::format("{} at {}", here.there, schedule.where(here.too_many)),
                      cause_of_in_flight(size, all));
        judge.ask(true, asked, std::to_string(here.peak));
    }
}

void judge_memory(Judge& judge) {
    needs(judge, "a10.1-work", judge_work);
    for (const Case& size : cases(judge)) {
        const Schedule schedule = schedule_of(judge, size);
        const Order order = runnable_order(judge, size, schedule);
        const Durations each{1, 1, 1};
        const Picoseconds most =
            std::max(time_with_flushes(size, each),
                     Picoseconds{3} * size.micro_batches * size.stages * 3 / 4);
        const Picoseconds taken = time_schedule(order.work, {each}).makespan;
        judge.ask(
            taken <= most,
            fmt::format("{}: {} units of time at most with t_f = 1, t_b = 2, as one "
                        "micro-batch after another holds little, too",
                        size.name(), most),
            fmt::format("{} units of time", taken));
        ask_in_flight(judge, size, schedule, order);
    }
}

/// Returns the first instruction for which the last stage has to wait once it has begun;
/// for nothing, if it is right.
std::string first_wait(const Schedule& schedule, const Order& order,
                       const Timing& timing) {
    const int stage = schedule.stages - 1;
    const auto& spans = timing.spans[stage];
    for (std::size_t i = 1; i < spans.size(); ++i)
        if (spans[i].start > spans[i - 1].end)
            return fmt::format(
                "{}: the last stage waits for it from {} to {}; it need not "
                "wait once it has begun",
                schedule.where({stage, order.positions[stage][i]}), spans[i - 1].end,
                spans[i].start);
    return "the last stage never waits, but its last backwards are late on their way "
           "back";
}

/// Says what a time is that is too long.
std::string cause_of_time(const Case& size, const Durations& each,
                          const Schedule& schedule, const Order& order,
                          const Timing& timing) {
    if (timing.makespan == time_with_flushes(size, each))
        return "that is the time with a flush: the pipeline empties behind each batch";
    const Picoseconds one_by_one = Picoseconds{size.micro_batches} * size.stages *
                                   (each.of(forward) + each.of(backward));
    if (timing.makespan == one_by_one)
        return "that is the time of one micro-batch after another";
    return first_wait(schedule, order, timing);
}

void judge_time(Judge& judge) {
    needs(judge, "a10.1-work", judge_work);
    for (const Case& size : cases(judge)) {
        const Schedule schedule = schedule_of(judge, size);
        const Order order = runnable_order(judge, size, schedule);
        for (const Durations& each : {Durations{1, 1, 1}, {5, 1, 1}, {2, 4, 3}}) {
            const Timing timing = time_schedule(order.work, {each});
            const Picoseconds most = least_time(size, each);
            const bool fast = timing.makespan <= most;
            judge.ask(
                fast,
                fmt::format("{}: all done after {} units of time with t_f = {}, t_b = "
                            "{}",
                            size.name(), most, each.of(forward), each.of(backward)),
                fmt::format("{} units of time", timing.makespan),
                fast ? "" : cause_of_time(size, each, schedule, order, timing));
        }
    }
}

}  // namespace

Assignment two_buffers_assignment() {
    const auto criterion = [](const char* id, const char* title, int points,
                              const char* step, void (*judged)(Judge&)) {
        return Criterion{id, title, points, lesson_step("pipedream", step), judged};
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
                   "buffers", judge_numbers),
         criterion("a10.1-memory", "stage s has min(p - s, m) micro-batches in flight",
                   10, "buffers", judge_memory),
         criterion("a10.1-time", "it never stops: done after (m + p - 1)(t_f + t_b)", 20,
                   "endless", judge_time),
         criterion("a10.2-kept", "each version goes when nobody needs it any more", 15,
                   "stash", two_buffers::judge_kept),
         criterion("a10.3-bytes", "what a stage holds at most, by a formula", 10,
                   "buffers", two_buffers::judge_bytes),
         criterion("a10.4-allowed", "a choice that the setting allows", 5, "buffers",
                   two_buffers::judge_allowed),
         criterion("a10.4-fastest", "the fastest of those", 15, "buffers",
                   two_buffers::judge_fastest)},
        two_buffers_solutions};
}

}  // namespace lockstep::lessons
