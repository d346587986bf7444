#include <algorithm>
#include <limits>

#include "src/pipeline/generators.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/timer.hpp"
#include "src/pipeline/validate.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/longest_path.hpp"
#include "tests/pipeline/random_schedule.hpp"
#include "tests/pipeline/sentence.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::WithinAbs;

namespace {

/// Returns whether the path leads from time 0 to the makespan without a pause.
bool critical_path_holds(const LongestPath& graph, const Timing& timing) {
    const std::vector<Place>& path = timing.critical_path;
    if (path.empty()) return graph.lets_begin(std::nullopt, std::nullopt);
    for (std::size_t i = 1; i < path.size(); ++i)
        if (!graph.lets_begin(path[i - 1], path[i])) return false;
    return graph.lets_begin(std::nullopt, path.front()) &&
           graph.lets_begin(path.back(), std::nullopt);
}

/// Returns the sum of the times of the critical path's instructions.
Picoseconds critical_time(const Timing& timing) {
    Picoseconds sum = 0;
    for (const Place place : timing.critical_path) {
        const TimeSpan span = timing.spans[static_cast<std::size_t>(place.stage)]
                                          [static_cast<std::size_t>(place.position)];
        sum += span.end - span.start;
    }
    return sum;
}

/// Returns a stage's computing time, and the span from its first computation to its last
/// end.
StageTiming stage_by_hand(const std::vector<Instruction>& work,
                          const std::vector<TimeSpan>& spans) {
    StageTiming stage;
    bool any = false;
    for (std::size_t i = 0; i < spans.size(); ++i) {
        const InstructionKind kind = work[i].kind;
        stage.span.end = std::max(stage.span.end, spans[i].end);
        if (is_computation(kind) && !any) stage.span.start = spans[i].start;
        any = any || is_computation(kind);
        // A pair has one span.
        const bool counts = is_computation(kind)
                                ? !work[i].together
                                : kind == InstructionKind::optimizer_step;
        if (counts) stage.busy += spans[i].end - spans[i].start;
    }
    return stage;
}

void check_stages(const Schedule& schedule, const Timing& timing) {
    Picoseconds longest = 0;
    Picoseconds ideal = 0;
    Picoseconds busy = 0;
    for (std::size_t s = 0; s < schedule.work.size(); ++s) {
        const StageTiming stage = stage_by_hand(schedule.work[s], timing.spans[s]);
        CHECK(timing.stages[s].span == stage.span);
        CHECK(timing.stages[s].busy == stage.busy);
        longest = std::max(longest, stage.span.end - stage.span.start);
        ideal = std::max(ideal, stage.busy);
        busy += stage.busy;
    }
    CHECK(timing.longest == longest);
    CHECK(timing.ideal == ideal);
    if (timing.makespan > 0)
        CHECK_THAT(timing.utilisation(),
                   WithinAbs(static_cast<double>(busy) /
                                 static_cast<double>(timing.makespan * schedule.stages),
                             1e-14));
}

/// Returns whether each instruction that takes time begins when its named cause ends.
bool causes_hold(const Schedule& schedule, const LongestPath& graph,
                 const Timing& timing) {
    const auto maybe = [](Place place) {
        return place ? std::optional(place) : std::nullopt;
    };
    for (int stage = 0; stage < schedule.stages; ++stage)
        for (const Place place : schedule.places(stage))
            if (timing.takes_time(place) &&
                !graph.lets_begin(maybe(timing.begins_after(place)), place))
                return false;
    return true;
}

void check_against_longest_path(const Schedule& schedule, const ScheduleTimes& times) {
    const LongestPath graph(schedule, times);
    const Timing timing = time_schedule(schedule, times);
    CAPTURE(lines_of(schedule));
    CHECK(timing.spans == graph.spans());
    CHECK(timing.makespan == graph.makespan());
    CHECK(critical_path_holds(graph, timing));
    CHECK(causes_hold(schedule, graph, timing));
    if (schedule.has_messages()) CHECK(critical_time(timing) == timing.makespan);
    check_stages(schedule, timing);
}

constexpr int kDraws = 1500;

}  // namespace

TEST_CASE("an order of work takes as long as its longest path", "[pipeline]") {
    Random random(1);
    for (int draw = 0; draw < kDraws; ++draw) {
        CAPTURE(draw);
        const Schedule schedule = random_schedule(random, {draw % 2 == 0, false});
        check_against_longest_path(
            schedule, random_durations(random, schedule.stages, draw % 3 != 0));
    }
}

TEST_CASE("a schedule with messages takes as long as its longest path", "[pipeline]") {
    Random random(2);
    for (int draw = 0; draw < kDraws; ++draw) {
        CAPTURE(draw);
        const Schedule schedule = random_schedule(random, {draw % 2 == 0, true});
        check_against_longest_path(
            schedule, random_durations(random, schedule.stages, draw % 3 != 0));
    }
}

TEST_CASE("planned messages take as long as the longest path, run as planned or not",
          "[pipeline]") {
    Random random(3);
    for (int draw = 0; draw < kDraws; ++draw) {
        CAPTURE(draw);
        const Schedule work = random_schedule(random, {draw % 2 == 0, false});
        const auto planned = random_durations(random, work.stages, draw % 3 != 0);
        const auto real = random_durations(random, work.stages, true);
        const Schedule schedule = with_messages(work, planned);
        check_against_longest_path(schedule, planned);
        check_against_longest_path(schedule, real);
    }
}

TEST_CASE(
    "groups, pairs and queues take as long as the longest path, with times by part "
    "and by link",
    "[pipeline]") {
    Random random(4);
    int runs = 0;
    int groups = 0;
    for (int draw = 0; draw < 2 * kDraws; ++draw) {
        CAPTURE(draw);
        const Schedule schedule = random_schedule(
            random, {draw % 2 == 0, draw % 5 != 0, draw % 3 != 0, draw % 3 == 0});
        const ScheduleTimes times = random_times(random, schedule);
        if (find_problem(schedule)) continue;  // groups may wait for one another
        check_against_longest_path(schedule, times);
        ++runs;
        for (const auto& list : schedule.work)
            groups += std::ranges::count(list, true, &Instruction::together) > 0;
    }
    CHECK(runs > kDraws);
    CHECK(groups > kDraws);
}

TEST_CASE("grouped messages take as long as the longest path", "[pipeline]") {
    Random random(5);
    int runs = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
        CAPTURE(draw);
        const Schedule schedule =
            with_grouped_messages(random_schedule(random, {draw % 2 == 0, false}));
        const ScheduleTimes times = random_times(random, schedule);
        if (find_problem(schedule)) continue;
        check_against_longest_path(schedule, times);
        ++runs;
    }
    CHECK(runs > kDraws / 4);
}

TEST_CASE("a single entry of durations applies to all stages", "[pipeline]") {
    const Schedule schedule = zb_h1_schedule({4, 9, 1});
    const Durations durations{5, 4, 3, 2};
    CHECK(time_schedule(schedule, {durations}).spans ==
          time_schedule(schedule, {durations, durations, durations, durations}).spans);
}

TEST_CASE("in an order of work, data arrives one message time after it was made",
          "[pipeline]") {
    const Schedule schedule = written_schedule({2, 1, 1}, {"F0 B0", "F0 I0 W0"});
    const Timing timing = time_schedule(schedule, {{10, 20, 30, 4}, {1, 2, 3, 7}});
    using Spans = std::vector<std::vector<TimeSpan>>;
    CHECK(timing.spans == Spans{{{0, 10}, {24, 74}}, {{14, 15}, {15, 17}, {17, 20}}});
    CHECK(timing.makespan == 74);
    CHECK(timing.stages[0].span == TimeSpan{0, 74});
    CHECK(timing.stages[0].busy == 60);
    CHECK(timing.stages[0].idle() == 14);
    CHECK(timing.stages[1].span == TimeSpan{14, 20});
    CHECK(timing.stages[1].idle() == 0);
    CHECK(timing.critical_path == std::vector<Place>{{0, 0}, {1, 0}, {1, 1}, {0, 1}});
    CHECK_THAT(timing.bubble_over_total(), WithinAbs(14.0 / 74, 1e-15));
    CHECK_THAT(timing.bubble_over_ideal(), WithinAbs(14.0 / 60, 1e-15));
    CHECK_THAT(timing.utilisation(), WithinAbs(66.0 / 148, 1e-15));
}

TEST_CASE("messages wait for both programs and for earlier messages, not for work",
          "[pipeline]") {
    const Schedule schedule = written_schedule(
        {2, 2, 1}, {"F0 SA0 F1 SA1 RG0 B0 RG1 B1", "RA0 RA1 F0 F1 B0 SG0 B1 SG1"});
    const Timing timing = time_schedule(schedule, {{2, 1, 1, 5}, {1, 1, 1, 1}});
    using Spans = std::vector<std::vector<TimeSpan>>;
    // SA1's data is ready at 4. It is sent after SA0; meanwhile stage 0 computes F1.
    CHECK(
        timing.spans ==
        Spans{
            {{0, 2}, {2, 7}, {2, 4}, {7, 12}, {15, 16}, {16, 18}, {18, 19}, {19, 21}},
            {{2, 7}, {7, 12}, {7, 8}, {12, 13}, {13, 15}, {15, 16}, {15, 17}, {18, 19}}});
    CHECK(timing.makespan == 21);
    CHECK(timing.stages[1].span == TimeSpan{7, 19});
    CHECK(timing.stages[1].busy == 6);
}

TEST_CASE("a schedule that takes no time has no bubble", "[pipeline]") {
    const Timing timing = time_schedule(gpipe_schedule({3, 2, 1}), {{0, 0, 0, 0}});
    CHECK(timing.makespan == 0);
    CHECK(timing.bubble() == 0);
    CHECK(timing.bubble_over_total() == 0);
    CHECK(timing.bubble_over_ideal() == 0);
    CHECK(timing.utilisation() == timing.utilisation());
}

TEST_CASE("impossible durations are refused with their numbers", "[pipeline][errors]") {
    const Schedule schedule = gpipe_schedule({3, 6, 1});
    const auto refused = [&](const std::vector<Durations>& durations) {
        return refusal([&] { time_schedule(schedule, durations); });
    };
    const Durations one;
    CHECK(tells(refused({}), {"0", "3"}));
    CHECK(tells(refused({one, one}), {"2", "3"}));
    CHECK(tells(refused({one, one, one, one}), {"4", "3"}));
    CHECK(tells(refused({{-1, 1, 1, 0}}), {"-1"}));
    CHECK(tells(refused({one, {1, -2, 1, 0}, one}), {"-2"}));
    CHECK(tells(refused({one, one, {1, 1, -3, 0}}), {"-3"}));
    CHECK(tells(refused({{1, 1, 1, -4}}), {"-4"}));
    const Picoseconds most = std::numeric_limits<Picoseconds>::max();
    const Picoseconds half = Picoseconds{1} << 61;
    for (const Durations& durations : {Durations{most, 0, 0, 0},
                                       {0, most, most, 0},
                                       {0, 0, 0, most},
                                       {half, half, half, half},
                                       {most, most, most, most}})
        CHECK(tells(refused({durations}), {"durations"}));
    CHECK(tells(refused({one, one, {half, 0, 0, 0}}), {"durations"}));
}

TEST_CASE("a schedule with a problem is not timed", "[pipeline][errors]") {
    const Schedule schedule = written_schedule({2, 1, 1}, {"F0 B0", "B0 F0"});
    CHECK(tells(refusal([&] { time_schedule(schedule, {{}}); }), {"stage 1", "B0"}));
}
