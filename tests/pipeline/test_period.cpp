// Pipelines that do not stop: what repeats, how long a period is, and which weights are
// read.

#include <algorithm>

#include "src/pipeline/generators.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/period.hpp"
#include "src/pipeline/schedule_json.hpp"
#include "src/pipeline/validate.hpp"
#include "src/pipeline/weight_versions.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/longest_path.hpp"
#include "tests/pipeline/random_schedule.hpp"
#include "tests/pipeline/sentence.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::WithinAbs;

namespace {

PeriodTiming period_of(const std::string& name, const PipelineShape& shape,
                       const ScheduleTimes& times = {{1, 1, 1, 0}}) {
    return time_period(make_endless_schedule(name, shape).value(), times);
}

/// Returns the average time of a micro-batch in a long run, after copy 100. The times are
/// those of a graph of all instructions, without periods.
double average_by_hand(const Schedule& schedule, const ScheduleTimes& times, int copies) {
    const Schedule many = repeated(schedule, 300);
    const LongestPath graph(many, times);
    const Positions first = many.period->first[0];
    const auto length = static_cast<std::size_t>(first.count());
    const auto end = [&](int copy) {
        return static_cast<double>(graph.spans()[0][first.first + copy * length].end);
    };
    return (end(100 + copies) - end(100)) / (copies * many.period->micro_batches);
}

}  // namespace

TEST_CASE(
    "PipeDream's period has no bubble, p - s versions, and gradients p - s - 1 updates "
    "late",
    "[pipeline]") {
    for (int p = 1; p <= 9; ++p) {
        CAPTURE(p);
        const PeriodTiming period = period_of("pipedream", {p, 8, 1}, {{3, 4, 2, 0}});
        CHECK(period.micro_batches == 1);
        CHECK(period.length == 9);
        CHECK(period.bubble() == 0);
        const std::vector<Holdings> held = peak_holdings(period);
        const auto stale = staleness(period);
        for (int s = 0; s < p; ++s) {
            const auto i = static_cast<std::size_t>(s);
            CAPTURE(s);
            CHECK(held[i].weight_versions == p - s);
            CHECK(held[i].in_flight == p - s);
            CHECK(stale[i] == std::vector<int>{p - s - 1});
        }
    }
}

TEST_CASE("with eight micro-batches PipeDream has 1F1B's bubble", "[pipeline]") {
    const Timing timing =
        time_schedule(make_schedule("pipedream", {4, 8, 1}), {{1, 1, 1, 0}});
    CHECK_THAT(timing.bubble_over_total(), WithinAbs(3.0 / 11, 1e-15));
}

TEST_CASE(
    "vertical sync keeps p versions on all stages, so each micro-batch sees one model",
    "[pipeline]") {
    for (int p = 1; p <= 8; ++p) {
        CAPTURE(p);
        const PeriodTiming period = period_of("pipedream-vertical", {p, 8, 1});
        CHECK(period.bubble() == 0);
        for (const Holdings& held : peak_holdings(period))
            CHECK(held.weight_versions == p);
        for (const std::vector<int>& stage : staleness(period))
            CHECK(stage == std::vector<int>{p - 1});
        for (const auto& stage : weight_uses(period.schedule))
            for (int i = 0; i < period.schedule.micro_batches; ++i) {
                const WeightUse& use = stage[0][static_cast<std::size_t>(i)];
                CHECK(use.forward == std::max(0, i - p + 1));
                CHECK(use.backward == use.forward);
            }
    }
}

TEST_CASE(
    "PipeDream-2BW's period has no bubble, two versions, and gradients one update "
    "late",
    "[pipeline]") {
    const Picoseconds work = 6;  // t_f + t_b of a micro-batch
    for (int p = 1; p <= 8; ++p)
        for (const int k : {std::max(p - 1, 1), p, p + 1, 2 * p + 3}) {
            CAPTURE(p, k);
            const PeriodTiming period =
                period_of("pipedream-2bw", {p, 3 * k, 1, k}, {{2, 3, 1, 0}});
            CHECK(period.micro_batches == k);
            CHECK(period.length == k * work);
            CHECK(period.bubble() == 0);
            for (const Holdings& held : peak_holdings(period)) {
                CHECK(held.weight_versions == 2);
                CHECK(held.in_flight <= p);
            }
            for (const std::vector<int>& stage : staleness(period))
                CHECK(stage == std::vector<int>{1});
            for (const auto& stage : weight_uses(period.schedule))
                for (int i = 0; i < period.schedule.micro_batches; ++i) {
                    const WeightUse& use = stage[0][static_cast<std::size_t>(i)];
                    CHECK(use.forward == std::max(0, i / k - 1));
                    CHECK(use.backward == use.forward);
                    CHECK(use.updated == i / k);
                }
        }
}

TEST_CASE("a flush costs (p - 1)(t_f + t_b) in each period", "[pipeline]") {
    const Picoseconds work = 6;  // t_f + t_b of a micro-batch
    for (int p = 1; p <= 6; ++p)
        for (const int k : {p, 2 * p, 7}) {
            CAPTURE(p, k);
            const Schedule steps = make_schedule("1f1b", {p, 3 * k, 1, k});
            REQUIRE(steps.period);
            const PeriodTiming period = time_period(steps, {{2, 3, 1, 0}});
            CHECK(period.micro_batches == k);
            CHECK(period.length == (k + p - 1) * work);
            CHECK(period.bubble() == (p - 1) * work);
            for (const auto& stage : staleness(period))
                CHECK(stage == std::vector<int>{0});
        }
}

TEST_CASE("a period takes the average time of many copies", "[pipeline]") {
    Random random(21);
    for (int draw = 0; draw < 120; ++draw) {
        const int p = random.between(1, 5);
        const char* const names[] = {"pipedream", "pipedream-vertical", "pipedream-2bw"};
        const std::string name = names[random.below(3)];
        const Schedule schedule = make_endless_schedule(name, {p, 6, 1}).value();
        const ScheduleTimes times = random_times(random, schedule);
        CAPTURE(draw, name, p);
        const PeriodTiming period = time_period(schedule, times);
        CHECK_THAT(static_cast<double>(period.length) / period.micro_batches,
                   WithinAbs(average_by_hand(schedule, times,
                                             100 / period.copies * period.copies),
                             1e-9));
    }
}

TEST_CASE("messages added to a period are part of it", "[pipeline]") {
    const Schedule schedule = make_endless_schedule("pipedream", {4, 8, 1}).value();
    const auto each = [&](Picoseconds message, const AddMessages& add) {
        const PeriodTiming period = time_period(schedule, {{2, 2, 2, message}}, add);
        return static_cast<double>(period.length) / period.micro_batches;
    };
    const auto grouped = [](const Schedule& all) { return with_grouped_messages(all); };
    const auto planned = [](const Schedule& all) { return with_messages(all); };
    CHECK_THAT(each(0, {}), WithinAbs(6, 1e-12));
    CHECK_THAT(each(0, grouped), WithinAbs(6, 1e-12));
    CHECK_THAT(each(0, planned), WithinAbs(6, 1e-12));
    // A stage is p - s forwards ahead. This is enough for the work alone, but not for
    // work and messages.
    const double free = each(1, {});
    CHECK(free > 6);
    CHECK(each(1, grouped) > free);
}

TEST_CASE("a repeating middle is written once and read back", "[pipeline]") {
    for (const std::string name : {"pipedream", "pipedream-vertical", "pipedream-2bw"}) {
        CAPTURE(name);
        const Schedule schedule = make_schedule(name, {3, 24, 1});
        REQUIRE(schedule.period);
        const std::string text = schedule_json(schedule);
        CHECK(text.find("\"]x" + std::to_string(schedule.period->times) + "\"") !=
              std::string::npos);
        const Schedule read = read_schedule_json(text, "mine.json").schedule;
        CHECK(read.work == schedule.work);
        CHECK(read.period->first == schedule.period->first);
        CHECK(read.period->times == schedule.period->times);
        CHECK(read.period->micro_batches == schedule.period->micro_batches);
    }
    const Schedule csv =
        read_schedule_csv("F0,[,F1,B0@0,U,]x3,B1@1,U\n[,F0,B0,U,]x3,F1,B1,U\n", "a.csv");
    CHECK(lines_of(csv) ==
          std::vector<std::string>{"F0 F1 B0@0 U F2 B1@1 U F3 B2@2 U B3@3 U",
                                   "F0 B0 U F1 B1 U F2 B2 U F3 B3 U"});
    CHECK(csv.micro_batches == 4);
}

TEST_CASE("a middle that does not repeat is refused", "[pipeline][errors]") {
    const auto refused = [](const std::string& text) {
        return refusal([&] { require_valid(read_schedule_csv(text, "a.csv")); });
    };
    CHECK(tells(refused("F0,],B0\n"), {"a.csv:1", "]xN with N from 1 to"}));
    CHECK(tells(refused("F0,]x0,B0\n"), {"a.csv:1", "]x0"}));
    CHECK(tells(refused("F0,]x2,B0\n"), {"a.csv:1", "ends nothing"}));
    CHECK(tells(refused("[,]x2,F0,B0\n"), {"a.csv:1", "nothing between"}));
    CHECK(tells(refused("[,F0,B0\n"), {"a.csv:1", "has no ]"}));
    CHECK(tells(refused("[,F0,B0,]x2,[\n"), {"a.csv:1", "second ["}));
    CHECK(tells(refused("[,F0,B0,]x2\nF0,B0\n"), {"a.csv: stage 1", "no middle"}));
    CHECK(tells(refused("[,F0,B0,]x2\n[,F0,B0,]x3\n"), {"a.csv:2", "3 times"}));
    CHECK(tells(refused("[,F0,B0,]x2\n[,F0,F1,B0,B1,]x2\n"), {"a.csv:2", "2 micro-b"}));
    CHECK(tells(refused("[,B0,]x2,F0\n"), {"a.csv:1", "0 micro-batches"}));
    CHECK(tells(refused("[,F0,B0,]x900000\n[,F0,B0,]x900000\n[,F0,B0,]x900000\n"
                        "[,F0,B0,]x900000\n[,F0,B0,]x900000\n"),
                {"a.csv:1", "4500000 forwards"}));
    CHECK(tells(refused("[,F0,B0,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,]x1000000\n"),
                {"a.csv:1", "17000000 instructions"}));
    CHECK(
        tells(refused("[,F0@2147483647,B0,U,]x3\n"), {"a.csv:1", "version 2147483647"}));
    CHECK(tells(refusal([] {
                    read_schedule_json(
                        R"({"chunks": 1, "schedule": [["[", "F0", "U.900", "]x3"]]})",
                        "a.json");
                }),
                {"a.json:1", "U.900", "no chunk 900"}));

    Schedule schedule = make_schedule("pipedream", {3, 12, 1});
    CHECK(tells(refusal([&] {
                    repeated(make_schedule("1f1b", {3, 6, 1}), 2);
                }),
                {"1f1b", "no middle"}));
    CHECK(tells(refusal([&] { repeated(schedule, 0); }), {"0 copies"}));
    const Positions first = schedule.period->first[1];
    std::swap(schedule.work[1][static_cast<std::size_t>(first.last)],
              schedule.work[1][static_cast<std::size_t>(first.last) + 1]);
    CHECK(tells(refusal([&] { require_valid(schedule); }),
                {"stage 1", "is expected here, in copy 2 of the repeated middle"}));
    schedule.period->times = 99;
    CHECK(tells(refusal([&] { require_valid(schedule); }), {"99 times"}));
}
