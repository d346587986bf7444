// Schedules whose chunks go back and forth, or from both ends. Compares them with
// published figures.

#include <algorithm>

#include "src/pipeline/holdings.hpp"
#include "src/pipeline/period.hpp"
#include "src/pipeline/timer.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/generator_shapes.hpp"
#include "tests/pipeline/sentence.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

const std::vector<Durations> kTimes{{1, 1, 1}, {2, 1, 1},           {1, 2, 1},
                                    {3, 3, 2}, {7, 3, 9},           {1, 0, 1},
                                    {4, 5, 2}, {18522, 18086, 9337}};

Picoseconds backward(const Durations& durations) {
    return durations.backward_input + durations.backward_weight;
}

/// Returns, for each stage, the maximum number of forwards without an ended backward.
std::vector<int> most_held(const Schedule& schedule) {
    std::vector<int> most;
    for (const std::vector<Instruction>& list : schedule.work) {
        most.push_back(0);
        int held = 0;
        for (const Instruction& each : list) {
            held += each.kind == InstructionKind::forward ? 1 : 0;
            most.back() = std::max(most.back(), held);
            held -= each.kind == InstructionKind::backward ||
                            each.kind == InstructionKind::backward_weight
                        ? 1
                        : 0;
        }
    }
    return most;
}

int most_anywhere(const Schedule& schedule) {
    return std::ranges::max(most_held(schedule));
}

/// If units of p micro-batches follow one another, Chimera is idle for p - 2 times the
/// returned time, and Hanayo for 2 (p - 1) times the returned time.
Picoseconds wait_of_units(const Durations& durations, int units) {
    return backward(durations) + (units - 1) * (backward(durations) - durations.forward);
}

/// Numbers the micro-batches of DualPipe's other end from 0 instead of m.
std::vector<Instruction> renumbered(std::vector<Instruction> list, int m) {
    for (Instruction& each : list)
        if (each.chunk == 1 && has_micro_batch(each.kind)) each.micro_batch -= m;
    return list;
}

}  // namespace

TEST_CASE("Chimera's bubble equals table 2's and its critical path's", "[pipeline]") {
    for (int p = 2; p <= 16; p += 2)
        for (const int units : {1, 2, 3, 5}) {
            CAPTURE(p, units);
            const Schedule schedule = chimera_schedule({p, p * units});
            // If forwards and backwards take equally long, table 2's bubble is (p - 2)/(2
            // m + p - 2).
            const Timing even = time_schedule(schedule, {{2, 1, 1}});
            CHECK(even.bubble() * (2 * p * units + p - 2) == even.makespan * (p - 2));
            for (const Durations& durations : kTimes) {
                if (durations.forward > backward(durations)) continue;
                const Timing timing = time_schedule(schedule, {durations});
                CHECK(timing.bubble() == (p - 2) * wait_of_units(durations, units));
                // Section 3.4: p forwards and 2 p - 2 backwards are on the critical path.
                if (units == 1)
                    CHECK(timing.makespan ==
                          p * durations.forward + (2 * p - 2) * backward(durations));
            }
            const std::vector<int> held = most_held(schedule);
            for (int s = 0; s < p; ++s)
                CHECK(held[static_cast<std::size_t>(s)] ==
                      p / 2 + 1 + std::min(s, p - 1 - s));
        }
}

TEST_CASE("Hanayo's waves divide the bubble", "[pipeline]") {
    for (int p = 1; p <= 9; ++p)
        for (const int units : {1, 2, 4})
            for (const int waves : {1, 2, 3}) {
                CAPTURE(p, units, waves);
                const Schedule schedule = hanayo_schedule({p, p * units, 2 * waves});
                for (const Durations& durations : kTimes) {
                    if (durations.forward > backward(durations)) continue;
                    // The durations are those of one of the 2 W chunks.
                    CHECK(time_schedule(schedule, {durations}).bubble() ==
                          wait_of_units(durations, units) * 2 * (p - 1));
                }
                const std::vector<int> held = most_held(schedule);
                for (int s = 0; s < p; ++s)
                    CHECK(held[static_cast<std::size_t>(s)] ==
                          (2 * waves - 1) * p + s + 1);
            }
}

TEST_CASE("a micro-batch in a wave turns on its stage, without a message", "[pipeline]") {
    const Schedule schedule = hanayo_schedule({3, 3, 4});
    CHECK(schedule.parts ==
          std::vector<std::vector<int>>{{0, 5, 6, 11}, {1, 4, 7, 10}, {2, 3, 8, 9}});
    CHECK(zb_v_schedule({3, 3}).parts ==
          std::vector<std::vector<int>>{{0, 5}, {1, 4}, {2, 3}});
    CHECK(lines_of(zb_v_schedule({2, 2}))[1] ==
          "F0 F0.1 F1 F1.1 I0.1 I0 W0.1 I1.1 I1 W0 W1.1 W1 R R.1 U U.1");
}

TEST_CASE("V-shaped schedules hold p, p / 2 and p / 3 micro-batches", "[pipeline]") {
    for (int p = 1; p <= 16; ++p)
        for (int m = 1; m <= 3 * p; ++m) {
            CAPTURE(p, m);
            for (const auto& [name, most] :
                 {std::pair{"zb-v", p}, std::pair{"v-half", (p + 2) / 2},
                  std::pair{"v-min", (p + 4) / 3}}) {
                CAPTURE(name);
                const int held = most_anywhere(make_schedule(name, {p, m}));
                CHECK(held <= 2 * most);
                if (m >= 2 * p) CHECK(held == 2 * most);
            }
        }
}

TEST_CASE("V-shaped schedules have a bubble of 0, 3 p and 4 p passes at most",
          "[pipeline]") {
    for (int p = 1; p <= 16; ++p)
        for (const int m : {2 * p, 2 * p + 1, 3 * p, 5 * p}) {
            CAPTURE(p, m);
            const auto bubble = [&](const char* name) {
                return time_schedule(make_schedule(name, {p, m}), {{1, 1, 1}}).bubble();
            };
            CHECK(bubble("zb-v") == 0);
            CHECK(bubble("v-half") < Picoseconds{3} * p);
            CHECK(bubble("v-min") < Picoseconds{4} * p);
            // More micro-batches make only the middle longer, which has no idle time.
            for (const char* name : {"v-half", "v-min"})
                CHECK(time_schedule(make_schedule(name, {p, m + 7}), {{1, 1, 1}})
                          .bubble() == bubble(name));
        }
    // Every stage is busy for 12 * 6 passes. The last stage begins p - 1 passes later.
    const Timing timing = time_schedule(zb_v_schedule({6, 12}), {{1, 1, 1}});
    CHECK(timing.makespan == 12 * 6 + 5);
}

TEST_CASE("ZB-V has no waits in its middle for the durations that the paper allows",
          "[pipeline]") {
    const auto bubble = [](int p, int m, const Durations& durations) {
        return time_schedule(zb_v_schedule({p, m}), {durations}).bubble();
    };
    for (const int p : {2, 4, 5, 8})
        for (int f = 1; f <= 4; ++f)
            for (int i = 0; i <= 4; ++i)
                for (int w = 0; w <= 4; ++w) {
                    if (w + 2 * i < 2 * f || w + 2 * f < 2 * i) continue;
                    CAPTURE(p, f, i, w);
                    CHECK(bubble(p, 4 * p, {f, i, w}) == bubble(p, 4 * p + 5, {f, i, w}));
                }
}

TEST_CASE("DualPipe's middle is idle for (p / 2 - 1)(t_fb + t_b - 3 t_w)", "[pipeline]") {
    for (int p = 2; p <= 12; p += 2)
        for (const int m : {2 * p, 2 * p + 2, 5 * p})
            for (const Durations& durations : {Durations{1, 1, 1}, {3, 3, 2}, {4, 4, 0}})
                for (int saved = 0; saved <= durations.forward; ++saved) {
                    CAPTURE(p, m, durations.forward, saved);
                    Durations times =
                        durations;  // a pair takes at least its backward's time
                    times.overlapped = durations.forward + backward(durations) - saved;
                    const Schedule schedule = dualpipe_schedule({p, m});
                    const Timing timing = time_schedule(schedule, {times});
                    const Picoseconds idle =
                        (p / 2 - 1) * (times.overlapped + backward(durations) -
                                       3 * durations.backward_weight);
                    for (const int s : {p / 2 - 1, p / 2}) {
                        const StageTiming& stage =
                            timing.stages[static_cast<std::size_t>(s)];
                        CHECK(timing.makespan - stage.busy == idle);
                    }
                    for (const int held : most_held(schedule))
                        CHECK(held == p + 1);
                }
}

TEST_CASE("DualPipe-V equals half of DualPipe", "[pipeline]") {
    for (const int p : {1, 2, 3, 5})
        for (const int m : {2 * p, 2 * p + 1, 5 * p}) {
            CAPTURE(p, m);
            const Schedule half = dualpipe_v_schedule({p, m});
            const Schedule whole = dualpipe_schedule({2 * p, 2 * m});
            for (const Durations& durations : kTimes) {
                const Timing timing = time_schedule(half, {durations});
                CHECK(timing.makespan == time_schedule(whole, {durations}).makespan);
            }
            for (const int held : most_held(half))
                CHECK(held == 2 * p + 1);
            for (int s = 0; s < p; ++s)
                CHECK(renumbered(whole.of_stage(s), m) == half.of_stage(s));
        }
}

TEST_CASE("DualPipe overlaps the same pairs as the published schedule", "[pipeline]") {
    // Eight stages and twenty micro-batches, as in the picture in DualPipe's repository:
    // the first stage overlaps 2 (10 - 8 + 1) + 3 pairs, the next stages more.
    const Schedule schedule = dualpipe_schedule({8, 20});
    std::vector<std::ptrdiff_t> pairs;
    for (const auto& list : schedule.work)
        pairs.push_back(std::ranges::count_if(
            list, [](const Instruction& each) { return each.together; }));
    CHECK(pairs == std::vector<std::ptrdiff_t>{9, 10, 11, 11, 11, 11, 10, 9});
    CHECK(lines_of(dualpipe_schedule({2, 4}))[0] ==
          "F0 F2.1 F1 B2.1 (F3.1;B0) B3.1 I1 W1 R R.1 U U.1");
}

TEST_CASE("stages that share parts reduce them in one order", "[pipeline]") {
    for (const char* name : {"chimera", "dualpipe"}) {
        const std::vector<std::string> lines = lines_of(make_schedule(name, {4, 8}));
        CHECK(lines[1].ends_with(" R R.1 U U.1"));
        CHECK(lines[2].ends_with(" R.1 R U.1 U"));
    }
}

TEST_CASE("impossible sizes of folded schedules are refused", "[pipeline][errors]") {
    const auto refused = [](const std::string& name, const PipelineShape& shape) {
        return refusal([&] { make_schedule(name, shape); });
    };
    const auto is_made = [](const std::string& name, const PipelineShape& shape) {
        try {
            return make_schedule(name, shape).stages == shape.stages;
        } catch (const UsageError&) {
            return false;
        }
    };
    CHECK(tells(refused("chimera", {3, 6}), {"chimera", "even", "3"}));
    CHECK(tells(refused("dualpipe", {5, 20}), {"dualpipe", "even", "5"}));
    CHECK(tells(refused("dualpipe", {4, 6}), {"dualpipe", "2 p", "6", "4"}));
    CHECK(tells(refused("dualpipe", {4, 9}), {"dualpipe", "even", "9"}));
    CHECK(tells(refused("dualpipe-v", {4, 7}), {"dualpipe-v", "2 p", "7", "4"}));
    CHECK(tells(refused("hanayo", {4, 8, 3}), {"hanayo", "even", "3"}));
    CHECK(tells(refused("zb-v", {4, 8, 3}), {"zb-v", "two chunks", "3"}));
    for (const std::string& name : schedule_names())
        for (int p = 1; p <= 5; ++p)
            for (int m = 1; m <= 12; ++m)
                for (int v = 1; v <= 3; ++v) {
                    CAPTURE(name, p, m, v);
                    CHECK(is_made(name, {p, m, v}) == takes(name, {p, m, v}));
                }
}
