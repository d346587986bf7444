// Measures how fast schedules are made, validated, completed with messages and timed:
// 1F1B of 64 stages and 1,024 micro-batches.

#include <benchmark/benchmark.h>

#include "src/pipeline/generators.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/timer.hpp"
#include "src/pipeline/validate.hpp"

namespace {

using namespace lockstep;

constexpr PipelineShape kShape{64, 1024, 1};
const std::vector<Durations> kDurations{{18522, 18086, 9337, 601}};

Schedule work() {
    return one_forward_one_backward_schedule(kShape);
}

/// Counts instructions per second, over all iterations.
void count(benchmark::State& state, const Schedule& schedule) {
    state.counters["instructions"] = benchmark::Counter(
        static_cast<double>(state.iterations()) * schedule.instructions(),
        benchmark::Counter::kIsRate);
}

void generate(benchmark::State& state) {
    for ([[maybe_unused]] auto _ : state)
        benchmark::DoNotOptimize(work());
    count(state, work());
}
BENCHMARK(generate)->Unit(benchmark::kMillisecond);

void validate(benchmark::State& state) {
    const Schedule schedule = state.range(0) == 0 ? work() : with_messages(work());
    for ([[maybe_unused]] auto _ : state)
        benchmark::DoNotOptimize(find_problem(schedule));
    count(state, schedule);
}
BENCHMARK(validate)->ArgName("messages")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

/// Includes validation, because timing begins with it.
void time(benchmark::State& state) {
    const Schedule schedule =
        state.range(0) == 0 ? work() : with_messages(work(), kDurations);
    for ([[maybe_unused]] auto _ : state)
        benchmark::DoNotOptimize(time_schedule(schedule, kDurations));
    count(state, schedule);
}
BENCHMARK(time)->ArgName("messages")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

/// Counts the instructions of the schedule with messages.
void add_messages(benchmark::State& state) {
    const Schedule schedule = work();
    for ([[maybe_unused]] auto _ : state)
        benchmark::DoNotOptimize(with_messages(schedule, kDurations));
    count(state, with_messages(schedule, kDurations));
}
BENCHMARK(add_messages)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
