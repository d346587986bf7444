// What the timer says of a schedule is what the virtual clock says of running it.

#include <algorithm>

#include "sim/cluster.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/pipeline.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/random_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr Picoseconds kMessage = 4;

/// A floating point operation takes a picosecond, a message kMessage, all else nothing.
ClusterSpec exact_cluster(Picoseconds message) {
    ClusterSpec spec;
    spec.name = "exact";
    spec.flops_f32 = 1e12;
    spec.inside.alpha_seconds = static_cast<double>(message) * 1e-12;
    return spec;
}

/// Takes exactly as long as it is told; durations are even.
class TimedModule final : public Module {
  public:
    TimedModule(Device& device, const StageDurations& durations)
        : device_(device), durations_(durations) {}

  private:
    Tensor do_forward(const Tensor& x, Saved& /*saved*/) override {
        spend(durations_.forward);
        return x;
    }
    Tensor do_backward_input(const Tensor& dy, Saved& /*saved*/) override {
        spend(durations_.backward_input);
        return dy;
    }
    void do_backward_weight(Saved& /*saved*/) override {
        spend(durations_.backward_weight);
    }
    void spend(Picoseconds time) {
        if (time == 0) return;
        const Tensor row = device_.empty({1, time / 2}, DType::f32);
        const Tensor column = device_.empty({time / 2, 1}, DType::f32);
        device_.matmul(row, column);  // (1, k) times (k, 1): 2 k flops
    }

    Device& device_;
    StageDurations durations_;
};

RunReport run_on_clock(const Schedule& schedule, Picoseconds message,
                       const std::vector<StageDurations>& durations) {
    sim::ClusterOptions options;
    options.ranks = schedule.stages;
    options.spec = exact_cluster(message);
    options.numbers = false;
    options.trace = true;
    const PipelinePlan plan(schedule);
    return sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        TimedModule module(
            device,
            durations[durations.size() == 1 ? 0
                                            : static_cast<std::size_t>(rank.index())]);
        const std::vector<Module*> chunks(static_cast<std::size_t>(schedule.chunks),
                                          &module);
        const PartBoundary boundary{
            [](const MicroBatch& batch) { return batch.input.shape(); }, DType::f32};
        const Tensor x = device.empty({1, 1}, DType::f32);
        const std::vector<MicroBatch> batches(
            static_cast<std::size_t>(schedule.micro_batches), MicroBatch{x, x, 1});
        const Loss loss = [](Device& on, const Tensor& y, const Tensor&, double) {
            return LossResult{on.empty({1}, DType::f64), y};
        };
        Pipeline(device, rank.world(), plan, chunks, boundary).run(loss, batches);
    });
}

/// Spans of one kind of event on a rank's queue, in order.
std::vector<TimeSpan> spans_of(const RunReport& report, int rank,
                               const std::string& kind) {
    std::vector<TimeSpan> spans;
    for (const TraceEvent& event : report.trace)
        if (event.rank == rank && event.kind == kind)
            spans.push_back({event.start, event.end});
    std::ranges::stable_sort(
        spans, {}, [](const TimeSpan& span) { return std::pair(span.start, span.end); });
    return spans;
}

/// The same as the timer has it.
std::vector<TimeSpan> spans_of(const Schedule& schedule, const Timing& timing, int stage,
                               bool messages) {
    std::vector<TimeSpan> spans;
    const auto& list = schedule.of(stage);
    for (std::size_t i = 0; i < list.size(); ++i)
        if (has_micro_batch(list[i].kind) && is_message(list[i].kind) == messages)
            spans.push_back(timing.spans[static_cast<std::size_t>(stage)][i]);
    std::ranges::stable_sort(
        spans, {}, [](const TimeSpan& span) { return std::pair(span.start, span.end); });
    return spans;
}

void check_times(const Schedule& schedule, std::vector<StageDurations> durations,
                 Picoseconds message) {
    for (StageDurations& each : durations)
        each = {2 * each.forward, 2 * each.backward_input, 2 * each.backward_weight,
                message};
    const Schedule sent = schedule.has_messages() ? schedule : with_messages(schedule);
    const Timing timing = time_schedule(sent, durations);
    const RunReport report = run_on_clock(sent, message, durations);
    CAPTURE(schedule.name, schedule.stages, schedule.micro_batches, schedule.chunks);
    REQUIRE(report.makespan() == timing.makespan);
    for (int stage = 0; stage < schedule.stages; ++stage) {
        CAPTURE(stage);
        REQUIRE(spans_of(report, stage, "phase") ==
                spans_of(sent, timing, stage, /*messages=*/false));
        REQUIRE(spans_of(report, stage, "communication") ==
                spans_of(sent, timing, stage, /*messages=*/true));
    }
}

}  // namespace

TEST_CASE("every generator's schedule takes on the clock what the timer says",
          "[pipeline][sim]") {
    for (const std::string& name : schedule_names())
        for (const int stages : {1, 2, 3, 5})
            for (const int rounds : {1, 2, 3}) {
                const int chunks = name == "interleaved" ? 2 : 1;
                const Schedule schedule =
                    make_schedule(name, {stages, stages * rounds, chunks});
                check_times(schedule, {{5, 4, 3, 0}}, 0);
                check_times(schedule, {{5, 4, 3, 0}}, kMessage);
            }
}

TEST_CASE("random schedules take on the clock what the timer says", "[pipeline][sim]") {
    Random random(1);
    for (int i = 0; i < 300; ++i) {
        RandomScheduleOptions options;
        options.messages = random.one_in(2);
        options.weight_versions = random.one_in(4);
        const Schedule schedule = random_schedule(random, options);
        check_times(schedule, random_durations(random, schedule.stages, false),
                    random.one_in(3) ? 0 : random.between(1, 9));
    }
}
