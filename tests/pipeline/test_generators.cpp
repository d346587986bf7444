#include <algorithm>

#include "src/pipeline/generators.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/timer.hpp"
#include "src/pipeline/validate.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/generator_shapes.hpp"
#include "tests/pipeline/sentence.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::WithinAbs;

namespace {

constexpr int kStages = 16;
constexpr int kMicroBatches = 64;
constexpr int kChunks = 4;

/// Times of forward and both halves of backward: equal, unequal, partly zero, and
/// measured.
const std::vector<Durations> kDurations{{1, 1, 1}, {2, 1, 1},           {1, 2, 1},
                                        {1, 1, 2}, {7, 3, 2},           {5, 0, 3},
                                        {0, 2, 1}, {18522, 18086, 9337}};

Picoseconds both(const Durations& durations) {
    return durations.forward + durations.backward_input + durations.backward_weight;
}

/// Calls `check` with every p and m for which a schedule of one chunk exists.
template <typename Check>
void for_each_shape(Check&& check) {
    for (int p = 1; p <= kStages; ++p)
        for (int m = 1; m <= kMicroBatches; ++m) {
            CAPTURE(p, m);
            check(p, m);
        }
}

/// Calls `check` with every p, m and v for which interleaved exists.
template <typename Check>
void for_each_interleaved(Check&& check) {
    for (int p = 1; p <= kStages; ++p)
        for (int m = p; m <= kMicroBatches; m += p)
            for (int v = 1; v <= kChunks; ++v) {
                CAPTURE(p, m, v);
                check(p, m, v);
            }
}

/// Returns whether the longest stage takes m (f + i + w) + (p - 1)(f + i - `halves` w) in
/// several shapes of a zero-bubble schedule, with at least `least(p)` micro-batches.
template <typename Least>
bool zero_bubble_time_holds(const std::string& name, int halves, Least&& least,
                            const Durations& durations) {
    for (int p = 2; p <= 7; ++p)
        for (int m = least(p); m < least(p) + 6; ++m) {
            const Picoseconds bubble =
                (p - 1) * (durations.forward + durations.backward_input -
                           halves * durations.backward_weight);
            const Timing timing =
                time_schedule(make_schedule(name, {p, m, 1}), {durations});
            if (timing.longest != m * both(durations) + bubble) return false;
        }
    return true;
}

void check_held(const Schedule& schedule, int stage, int in_flight, int between) {
    const Holdings held = peak_holdings(schedule)[static_cast<std::size_t>(stage)];
    CAPTURE(stage);
    CHECK(held.in_flight == in_flight);
    CHECK(held.between == between);
    CHECK(held.weight_versions == 1);
}

}  // namespace

TEST_CASE("naive takes m p (f + b): one stage works at a time", "[pipeline]") {
    for_each_shape([](int p, int m) {
        for (const Durations& durations : kDurations) {
            const Timing timing = time_schedule(naive_schedule({p, m, 1}), {durations});
            CHECK(timing.makespan == both(durations) * m * p);
            CHECK(timing.ideal == m * both(durations));
            CHECK_THAT(timing.utilisation(), WithinAbs(1.0 / p, 1e-15));
            CHECK_THAT(timing.bubble_over_ideal(), WithinAbs(p - 1.0, 1e-13));
            CHECK_THAT(timing.bubble_over_total(), WithinAbs((p - 1.0) / p, 1e-15));
        }
    });
}

TEST_CASE("GPipe and 1F1B take (m + p - 1)(f + b) for any durations", "[pipeline]") {
    for_each_shape([](int p, int m) {
        const Schedule gpipe = gpipe_schedule({p, m, 1});
        const Schedule in_turn = one_forward_one_backward_schedule({p, m, 1});
        for (const Durations& durations : kDurations)
            for (const Schedule& schedule : {gpipe, in_turn}) {
                const Timing timing = time_schedule(schedule, {durations});
                CHECK(timing.makespan == (m + p - 1) * both(durations));
                CHECK(timing.longest == timing.makespan);
                CHECK(timing.ideal == m * both(durations));
                CHECK_THAT(timing.bubble_over_ideal(),
                           WithinAbs((p - 1.0) / m, 1e-15 * p));
                CHECK_THAT(timing.bubble_over_total(),
                           WithinAbs((p - 1.0) / (m + p - 1.0), 1e-15));
                CHECK_THAT(timing.utilisation(), WithinAbs(m / (m + p - 1.0), 1e-15));
            }
    });
}

TEST_CASE("interleaved takes (m v + p - 1)(f + b) of a chunk: v times less bubble",
          "[pipeline]") {
    for_each_interleaved([](int p, int m, int v) {
        const Schedule schedule = interleaved_schedule({p, m, v});
        for (const Durations& durations : kDurations) {
            const Timing timing = time_schedule(schedule, {durations});
            CHECK(timing.makespan == (m * v + p - 1) * both(durations));
            CHECK(timing.longest == timing.makespan);
            CHECK_THAT(timing.bubble_over_ideal(), WithinAbs((p - 1.0) / (m * v), 1e-14));
        }
    });
}

TEST_CASE("ZB-H1's longest stage is idle for (p - 1)(f + i - w)", "[pipeline]") {
    for_each_shape([](int p, int m) {
        if (m < p) return;
        for (const Durations& durations : kDurations) {
            if (durations.backward_weight > durations.forward) continue;
            const Timing timing = time_schedule(zb_h1_schedule({p, m, 1}), {durations});
            CHECK(timing.ideal == m * both(durations));
            CHECK(timing.bubble() ==
                  (p - 1) * (durations.forward + durations.backward_input -
                             durations.backward_weight));
        }
    });
}

TEST_CASE("ZB-H2's longest stage is idle for (p - 1)(f + i - 2 w)", "[pipeline]") {
    for_each_shape([](int p, int m) {
        if (m < 2 * p - 1) return;
        for (const Durations& durations : kDurations) {
            const Picoseconds idle = durations.forward + durations.backward_input -
                                     2 * durations.backward_weight;
            if (durations.backward_weight > durations.forward || idle < 0) continue;
            const Timing timing = time_schedule(zb_h2_schedule({p, m, 1}), {durations});
            CHECK(timing.ideal == m * both(durations));
            CHECK(timing.bubble() == (p - 1) * idle);
        }
        const Durations one{1, 1, 1};
        const Timing even = time_schedule(zb_h2_schedule({p, m, 1}), {one});
        CHECK(even.longest == m * both(one));
        CHECK(even.bubble_over_total() == 0);
    });
}

TEST_CASE("zero-bubble times are exact if the weight halves fit", "[pipeline]") {
    for (int f = 0; f <= 4; ++f)
        for (int i = 0; i <= 4; ++i)
            for (int w = 0; w <= 4; ++w) {
                CAPTURE(f, i, w);
                const Durations durations{f, i, w, 0};
                CHECK(zero_bubble_time_holds(
                          "zb-h1", 1, [](int p) { return p; }, durations) == (w <= f));
                CHECK(zero_bubble_time_holds(
                          "zb-h2", 2, [](int p) { return 2 * p - 1; }, durations) ==
                      (w <= f && 2 * w <= f + i));
            }
}

TEST_CASE("every stage holds as many micro-batches as the formulas say", "[pipeline]") {
    for_each_shape([](int p, int m) {
        const Schedule naive = naive_schedule({p, m, 1});
        const Schedule gpipe = gpipe_schedule({p, m, 1});
        const Schedule in_turn = one_forward_one_backward_schedule({p, m, 1});
        const Schedule zb_h1 = zb_h1_schedule({p, m, 1});
        const Schedule zb_h2 = zb_h2_schedule({p, m, 1});
        for (const int s : {0, 1, p / 2, p - 1}) {
            if (s >= p) continue;
            check_held(naive, s, 1, 0);
            check_held(gpipe, s, m, 0);
            check_held(in_turn, s, std::min(p - s, m), 0);
            check_held(zb_h1, s, std::min(p - s, m), std::min(s + 1, m));
            check_held(zb_h2, s, std::min(2 * (p - s) - 1, m), std::min(2 * s + 1, m));
        }
    });
    for_each_interleaved([](int p, int m, int v) {
        const Schedule schedule = interleaved_schedule({p, m, v});
        for (int s = 0; s < p; ++s)
            check_held(schedule, s, std::min(2 * (p - s - 1) + (v - 1) * p + 1, m * v),
                       0);
    });
}

TEST_CASE("generated schedules can run, with messages and without", "[pipeline]") {
    const auto can_run = [](const Schedule& schedule) {
        CAPTURE(schedule.name);
        const auto problem = find_problem(schedule);
        CHECK((problem ? problem->sentence : "") == "");
        if (schedule.micro_batches > 16 && schedule.micro_batches % 4 != 0) return;
        const auto messages_problem = find_problem(with_messages(schedule));
        CHECK((messages_problem ? messages_problem->sentence : "") == "");
    };
    for_each_shape([&](int p, int m) {
        for (int v = 1; v <= kChunks; ++v)
            for (const std::string& name : names_for({p, m, v}))
                can_run(make_schedule(name, {p, m, v}));
    });
}

TEST_CASE("the orders of work equal the published ones", "[pipeline]") {
    using Lines = std::vector<std::string>;
    CHECK(lines_of(naive_schedule({2, 2, 1})) ==
          Lines{"F0 B0 F1 B1 R U", "F0 B0 F1 B1 R U"});
    CHECK(lines_of(gpipe_schedule({2, 2, 1})) ==
          Lines{"F0 F1 B0 B1 R U", "F0 F1 B0 B1 R U"});
    CHECK(lines_of(one_forward_one_backward_schedule({4, 8, 1})) ==
          Lines{"F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7 R U",
                "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7 R U",
                "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7 R U",
                "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 R U"});
    CHECK(lines_of(interleaved_schedule({2, 4, 2})) ==
          Lines{"F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3 "
                "R R.1 U U.1",
                "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3 "
                "R R.1 U U.1"});
}

TEST_CASE("schedules are made by the names that are listed", "[pipeline]") {
    for (const std::string& name : schedule_names())
        CHECK(make_schedule(name, {2, 4, 1}).name == name);
    CHECK(lines_of(make_schedule("zb-h2", {3, 5, 1})) ==
          lines_of(zb_h2_schedule({3, 5, 1})));
}

TEST_CASE("impossible sizes are refused with their numbers", "[pipeline][errors]") {
    const auto refused = [](const std::string& name, const PipelineShape& shape) {
        return refusal([&] { make_schedule(name, shape); });
    };
    for (const std::string& name : schedule_names()) {
        CAPTURE(name);
        CHECK(tells(refused(name, {0, 4, 1}), {"0 stages"}));
        CHECK(tells(refused(name, {-3, 4, 1}), {"-3 stages"}));
        CHECK(tells(refused(name, {4, 0, 1}), {"0 micro-batches"}));
        CHECK(tells(refused(name, {4, -8, 1}), {"-8 micro-batches"}));
        CHECK(tells(refused(name, {4, 8, 0}), {"0"}));
        CHECK(tells(refused(name, {4, 8, -2}), {"-2"}));
        CHECK(tells(refused(name, {2'000'000'000, 4, 1}), {"2000000000"}));
        CHECK(tells(refused(name, {2, 2'000'000'000, 1}), {"2000000000"}));
        CHECK(tells(refused(name, {16'000, 1'000'000, 1}), {"16000", "1000000"}));
        if (takes(name, {4, 8, 8})) continue;
        CHECK(tells(refused(name, {4, 8, 8}), {name, "8", "interleaved"}));
    }
    CHECK(tells(refused("interleaved", {2, 4, 2'000'000'000}), {"2000000000"}));
    CHECK(tells(refused("interleaved", {1'000, 1'000, 1'000}), {"1000"}));
    CHECK(tells(refused("zb-h3", {2, 4, 1}), {"zb-h3", "zb-h2", "1f1b"}));
    CHECK(tells(refusal([] { empty_schedule("mine", {0, 1, 1}); }), {"0 stages"}));
}

TEST_CASE("chunks divide the bubble for p or more micro-batches", "[pipeline]") {
    for_each_shape([](int p, int m) {
        if (p > 8 || m > 24) return;
        for (int v = 1; v <= kChunks; ++v)
            for (const Durations& durations : {Durations{1, 1, 1}, {2, 1, 1}, {7, 3, 2}})
                for (const char* name : {"interleaved", "looped-bfs"}) {
                    CAPTURE(name, v, durations.forward);
                    const Schedule schedule = make_schedule(name, {p, m, v});
                    const Timing timing = time_schedule(schedule, {durations});
                    if (m >= p)
                        CHECK(timing.makespan == (m * v + p - 1) * both(durations));
                    else
                        CHECK(timing.makespan > (m * v + p - 1) * both(durations) - 1);
                }
    });
}

TEST_CASE("interleaved rounds are as even as possible; stages hold what the formula says",
          "[pipeline]") {
    for_each_shape([](int p, int m) {
        if (p > 8 || m > 24) return;
        for (int v = 1; v <= kChunks; ++v) {
            const int rounds = std::max(m / p, 1);
            const int largest = (m + rounds - 1) / rounds;
            const std::vector<Holdings> held =
                peak_holdings(make_schedule("interleaved", {p, m, v}));
            for (int s = 0; s < p; ++s) {
                CAPTURE(v, s);
                CHECK(held[static_cast<std::size_t>(s)].in_flight ==
                      std::min(2 * (p - s - 1) + (v - 1) * largest + 1, m * v));
            }
            for (const Holdings& all :
                 peak_holdings(make_schedule("looped-bfs", {p, m, v})))
                CHECK(all.in_flight == m * v);
        }
    });
}
