// These tests are public. The grader tests more: other numbers of stages and
// micro-batches, other limits and durations. It also runs your schedules with numbers.

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "adapters.hpp"
#include "src/course/public_test.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/timer.hpp"
#include "src/pipeline/validate.hpp"

using namespace lockstep;

/// Expects the work of each micro-batch once, then R and U, and no other instructions.
void expect_work(const Schedule& schedule, int stage, bool halves) {
    const auto& list = schedule.of_stage(stage);
    const auto has = [&](InstructionKind kind) {
        return std::ranges::count(list, kind, &Instruction::kind) > 0;
    };
    const std::size_t work =
        (halves ? 3 : 2) * static_cast<std::size_t>(schedule.micro_batches);
    expect(!has(halves ? InstructionKind::backward : InstructionKind::backward_weight),
           fmt::format("stage {} should have {}", stage,
                       halves ? "F, I and W, no B" : "F and B, no halves"));
    expect(list.size() == work + 2 &&
               list[work].kind == InstructionKind::reduce_gradients &&
               list[work + 1].kind == InstructionKind::optimizer_step,
           fmt::format("stage {} should have {} instructions of work, then R and U once, "
                       "as end_step() writes them; it has {} in all",
                       stage, work, list.size()));
}

/// Expects a schedule of these sizes that can run.
void expect_runs(const Schedule& schedule, int stages, int micro_batches,
                 bool halves = false) {
    expect_equal(schedule.stages, stages, "stages");
    expect_equal(schedule.micro_batches, micro_batches, "micro-batches");
    for (int stage = 0; stage < stages; ++stage)
        expect(
            schedule.parts.at(stage) == std::vector<int>{stage},
            fmt::format(
                "stage {} should hold only part {} of the model, as in empty_schedule()",
                stage, stage));
    const auto problem = find_problem(schedule);
    expect(!problem, problem ? problem->sentence : "it can run");
    for (int stage = 0; stage < stages; ++stage)
        expect_work(schedule, stage, halves);
}

void expect_most(std::int64_t got, std::int64_t most, const std::string& what) {
    expect(got <= most, fmt::format("{}: {}; at most {} are expected", what, got, most));
}

/// Expects that the schedule takes at most the time of `turns` forwards and backwards,
/// first with forwards shorter than backwards, then with longer forwards.
void expect_turns(const Schedule& schedule, int turns) {
    for (const Durations& each : {Durations{1, 1, 1}, {5, 1, 1}}) {
        const Picoseconds backward = each.backward_input + each.backward_weight;
        expect_most(
            time_schedule(schedule, {each}).makespan, turns * (each.forward + backward),
            fmt::format("with t_f = {} and t_b = {}, units of time until all is done",
                        each.forward, backward));
    }
}

void test_1f1b(int p, int m) {
    const Schedule schedule = adapters::one_forward_one_backward(p, m);
    expect_runs(schedule, p, m);
    const auto peaks = peak_holdings(schedule);
    for (int stage = 0; stage < p; ++stage)
        expect_most(peaks[stage].in_flight, std::min(p - stage, m),
                    fmt::format("micro-batches in flight on stage {}", stage));
    expect_turns(schedule, m + p - 1);
}

void test_limit(int p, int m, int limit) {
    const Schedule schedule = adapters::with_memory_limit(p, m, limit);
    expect_runs(schedule, p, m);
    const auto peaks = peak_holdings(schedule);
    for (int stage = 0; stage < p; ++stage)
        expect_most(peaks[stage].in_flight, limit,
                    fmt::format("micro-batches in flight on stage {}", stage));
    const int most = std::min(limit, p);
    const int groups = (m + most - 1) / most;
    expect_turns(schedule, m + p - 1 + (groups - 1) * (p - most));
}

void test_split(int p, int m, int limit) {
    const Schedule schedule = adapters::split_backward(p, m, limit);
    expect_runs(schedule, p, m, true);
    const auto peaks = peak_holdings(schedule);
    for (int stage = 0; stage < p; ++stage)
        expect_most(static_cast<std::int64_t>(peaks[stage].memory), limit,
                    fmt::format("micro-batches held on stage {}", stage));
    expect_most(time_schedule(schedule, {{1, 1, 1}}).bubble(),
                std::max(0, 2 * p - 1 - std::min(limit, m)),
                "with t_f = t_i = t_w = 1, units of time in the bubble");
}

int main() {
    PublicTest test;
    test.check("a4.1 1F1B, 4 stages, 8 micro-batches", [] { test_1f1b(4, 8); });
    test.check("a4.1 1F1B, 3 stages, 5 micro-batches", [] { test_1f1b(3, 5); });
    test.check("a4.1 1F1B, 5 stages, 2 micro-batches", [] { test_1f1b(5, 2); });
    test.check("a4.1 1F1B, 1 stage, 3 micro-batches", [] { test_1f1b(1, 3); });
    test.check("a4.2 1 micro-batch in flight, 3 stages", [] { test_limit(3, 4, 1); });
    test.check("a4.2 2 in flight, 4 stages, 8 micro-batches",
               [] { test_limit(4, 8, 2); });
    test.check("a4.2 3 in flight, 4 stages, 9 micro-batches",
               [] { test_limit(4, 9, 3); });
    test.check("a4.2 3 in flight, 4 stages, 7 micro-batches",
               [] { test_limit(4, 7, 3); });
    test.check("a4.2 2 in flight, 5 stages, 4 micro-batches",
               [] { test_limit(5, 4, 2); });
    test.check("a4.2 as many in flight as 4 stages need", [] { test_limit(4, 8, 4); });
    test.check("a4.3 halves, 4 stages, 8 micro-batches, 4 held",
               [] { test_split(4, 8, 4); });
    test.check("a4.3 halves, 4 stages, 8 micro-batches, 5 held",
               [] { test_split(4, 8, 5); });
    test.check("a4.3 halves, 7 stages, 29 micro-batches, 8 held",
               [] { test_split(7, 29, 8); });
    test.check("a4.3 halves, 4 stages, 2 micro-batches, 5 held",
               [] { test_split(4, 2, 5); });
    test.check("a4.3 halves, 2 stages, 5 micro-batches, 9 held",
               [] { test_split(2, 5, 9); });
    test.check("a4.3 halves, 1 stage, 3 micro-batches, 1 held",
               [] { test_split(1, 3, 1); });
    return test.finish();
}
