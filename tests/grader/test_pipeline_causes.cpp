// The assignment `pipeline-1f1b` says why schedules hold or take too much: each usual
// mistake is made here by a generator, or by hand.

#include <algorithm>

#include "lessons/assignments/pipeline_1f1b/grading/causes.hpp"
#include "src/pipeline/generators.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using Catch::Matchers::ContainsSubstring;

using enum InstructionKind;

namespace {

constexpr Durations kEach{1, 1, 1};

MostHeld by_stage(int stages) {
    return [stages](int stage) { return stages - stage; };
}

MostHeld limit(int most) {
    return [most](int) { return most; };
}

/// 1F1B, each stage with as many forwards before its first backward as `warm_up` says.
Schedule warmed_up(int stages, int micro_batches, const MostHeld& warm_up) {
    Schedule schedule = empty_schedule("mine", {stages, micro_batches, 1});
    for (int stage = 0; stage < stages; ++stage) {
        const int ahead = std::min(warm_up(stage), micro_batches) - 1;
        auto& work = schedule.work[static_cast<std::size_t>(stage)];
        for (int turn = 0; turn < micro_batches + ahead; ++turn) {
            if (turn < micro_batches) work.push_back({forward, turn});
            if (turn >= ahead) work.push_back({backward, turn - ahead});
        }
    }
    end_step(schedule);
    return schedule;
}

/// Groups of so many micro-batches, each forward and then back.
Schedule in_groups(int stages, int micro_batches, int group) {
    Schedule schedule = empty_schedule("mine", {stages, micro_batches, 1});
    for (auto& work : schedule.work)
        for (int first = 0; first < micro_batches; first += group)
            for (const InstructionKind kind : {forward, backward})
                for (int i = first; i < std::min(first + group, micro_batches); ++i)
                    work.push_back({kind, i});
    end_step(schedule);
    return schedule;
}

}  // namespace

TEST_CASE("a warm-up that grows along the pipeline is told from one that shrinks") {
    CHECK_THAT(cause_of_standstill(warmed_up(4, 8, [](int stage) { return stage + 1; })),
               ContainsSubstring("the other way round"));
    // Nobody can run this, either way.
    Schedule none = warmed_up(2, 2, by_stage(2));
    std::ranges::reverse(none.work[0]);
    CHECK(cause_of_standstill(none).empty());
}

TEST_CASE("a schedule that holds too much is told what it does") {
    CHECK_THAT(cause_of_holding(gpipe_schedule({4, 8}), 0, by_stage(4)),
               ContainsSubstring("GPipe"));
    CHECK_THAT(cause_of_holding(warmed_up(4, 8, limit(4)), 1, by_stage(4)),
               ContainsSubstring("every stage makes 4 forwards"));
    const Schedule ahead = warmed_up(4, 8, [](int stage) { return 5 - stage; });
    CHECK_THAT(
        cause_of_holding(ahead, 2, by_stage(4)),
        ContainsSubstring("stage 2 begins F2, its instruction 3, while it holds 2"));
    const Schedule halves = zb_h2_schedule({3, 9});
    CHECK_THAT(
        cause_of_holding(halves, 0, limit(3)),
        ContainsSubstring("stage 0 begins F3, its instruction 4, while it holds 3"));
}

TEST_CASE("a schedule that takes too long is told where it waits") {
    CHECK_THAT(cause_of_waiting(naive_schedule({4, 8}), kEach, by_stage(4)),
               ContainsSubstring("before the next one begins"));
    CHECK_THAT(cause_of_waiting(in_groups(4, 8, 2), kEach, limit(2)),
               ContainsSubstring("2 forwards, then their backwards"));
    // Stage 1 of 3 could run the backward of micro-batch 0 from time 5 on.
    CHECK_THAT(cause_of_waiting(warmed_up(3, 4, limit(2)), kEach, limit(2)),
               ContainsSubstring("could run then"));
    const Schedule late =
        warmed_up(4, 8, [](int stage) { return std::max(3 - stage, 1); });
    CHECK_THAT(cause_of_waiting(late, kEach, by_stage(4)),
               ContainsSubstring("stage 0 does nothing from 3 to 10, since B0 is next in "
                                 "its list; F3, which stands behind it, could run then"));
}

TEST_CASE("a forward that would break the limit is no chance missed") {
    const Schedule right = one_forward_one_backward_schedule({4, 8});
    CHECK(cause_of_waiting(right, kEach, by_stage(4)).empty());
    CHECK_THAT(cause_of_waiting(right, kEach, limit(8)),
               ContainsSubstring("could run then"));
}

TEST_CASE("a W that stands right behind its I is told to wait") {
    const Schedule whole = warmed_up(3, 6, by_stage(3));
    Schedule schedule = empty_schedule("mine", {3, 6, 1});
    for (int stage = 0; stage < 3; ++stage) {
        auto& work = schedule.work[static_cast<std::size_t>(stage)];
        for (const Instruction& each : whole.of(stage)) {
            work.push_back(each);
            if (each.kind != backward) continue;
            work.back().kind = backward_input;
            work.push_back({backward_weight, each.micro_batch});
        }
    }
    CHECK_THAT(cause_of_waiting(schedule, kEach, limit(3)),
               ContainsSubstring("right behind its I"));
    CHECK_THAT(cause_of_waiting(zb_h1_schedule({3, 6}), kEach, limit(3)),
               !ContainsSubstring("right behind its I"));
}
