// The timer and the virtual clock give the same times for a schedule.

#include <algorithm>
#include <functional>
#include <optional>

#include "sim/cluster.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/pipeline.hpp"
#include "src/pipeline/validate.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/chain.hpp"
#include "tests/pipeline/generator_shapes.hpp"
#include "tests/pipeline/random_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr Picoseconds kMessage = 4;

/// A floating point operation takes a picosecond, a message takes `message`, and nothing
/// else takes time.
ClusterSpec exact_cluster(Picoseconds message) {
    ClusterSpec spec;
    spec.name = "exact";
    spec.flops_f32 = 1e12;
    spec.inside.alpha_seconds = static_cast<double>(message) * 1e-12;
    return spec;
}

/// A module whose passes take exactly the given durations, which must be even.
class TimedModule final : public Module {
  public:
    TimedModule(Device& device, const Durations& durations)
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
    Durations durations_;
};

RunReport run_on_clock(const Schedule& schedule, Picoseconds message,
                       const std::vector<Durations>& durations,
                       std::optional<sim::CheckLevel> check) {
    sim::ClusterOptions options;
    options.check = check;
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
        const Loss loss = [](Device& target, const Tensor& y, const Tensor&, double) {
            return LossResult{target.empty({1}, DType::f64), y};
        };
        Pipeline(device, rank.world(), plan, chunks, boundary).run(loss, batches);
    });
}

/// Returns the spans of one kind of event on a rank, in order. Leaves out the making of
/// communicators.
std::vector<TimeSpan> spans_of(const RunReport& report, int rank,
                               const std::string& kind) {
    std::vector<TimeSpan> spans;
    for (const TraceEvent& event : report.trace)
        if (event.rank == rank && event.kind == kind && event.name != "split")
            spans.push_back({event.start, event.end});
    std::ranges::stable_sort(
        spans, {}, [](const TimeSpan& span) { return std::pair(span.start, span.end); });
    return spans;
}

/// Returns the timer's spans of these events; a group of messages has one span.
std::vector<TimeSpan> spans_of(const Schedule& schedule, const Timing& timing, int stage,
                               bool messages) {
    std::vector<TimeSpan> spans;
    const auto& list = schedule.of_stage(stage);
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (!has_micro_batch(list[i].kind) || is_message(list[i].kind) != messages)
            continue;
        const TimeSpan span = timing.spans[static_cast<std::size_t>(stage)][i];
        if (list[i].together)
            spans.back() = {std::min(spans.back().start, span.start),
                            std::max(spans.back().end, span.end)};
        else
            spans.push_back(span);
    }
    std::ranges::stable_sort(
        spans, {}, [](const TimeSpan& span) { return std::pair(span.start, span.end); });
    return spans;
}

/// Returns whether a stage would send, or receive, two messages at once. On the clock a
/// device has one port for sending and one for receiving; the timer has no ports.
bool shares_ports(const Schedule& schedule, const Timing& timing) {
    for (int stage = 0; stage < schedule.stages; ++stage)
        for (const bool sends : {false, true}) {
            std::vector<TimeSpan> spans;
            for (const Place place : schedule.places(stage)) {
                const InstructionKind kind = schedule.at(place).kind;
                if (is_message(kind) && is_send(kind) == sends)
                    spans.push_back(timing.span(place));
            }
            std::ranges::sort(spans, {}, &TimeSpan::start);
            for (std::size_t i = 1; i < spans.size(); ++i)
                if (spans[i].start < spans[i - 1].end) return true;
        }
    return false;
}

/// Returns whether the stages would wait for one another if each had one queue, and not
/// one for each direction. Then GPUs without room for waiting kernels would deadlock.
bool needs_directions(Schedule schedule) {
    if (schedule.queues == MessageQueues::one) return false;
    schedule.queues = MessageQueues::one;
    return find_problem(schedule).has_value();
}

void check_times(const Schedule& schedule, std::vector<Durations> durations,
                 Picoseconds message) {
    for (Durations& each : durations)
        each = {2 * each.forward, 2 * each.backward_input, 2 * each.backward_weight,
                message};
    Schedule sent = schedule.has_messages() ? schedule : with_messages(schedule);
    // A device runs one computation after another.
    for (auto& list : sent.work)
        for (Instruction& each : list)
            each.together &= is_message(each.kind);
    if (find_problem(sent)) return;
    const Timing timing = time_schedule(sent, durations);
    if (shares_ports(sent, timing)) return;
    CAPTURE(schedule.name, schedule.stages, schedule.micro_batches, schedule.chunks);
    std::optional<sim::CheckLevel> check;
    if (needs_directions(sent)) check = sim::CheckLevel::cheap;
    const RunReport report = run_on_clock(sent, message, durations, check);
    REQUIRE(report.makespan() == timing.makespan);
    for (int stage = 0; stage < schedule.stages; ++stage) {
        CAPTURE(stage);
        REQUIRE(spans_of(report, stage, "phase") ==
                spans_of(sent, timing, stage, /*messages=*/false));
        REQUIRE(spans_of(report, stage, "communication") ==
                spans_of(sent, timing, stage, /*messages=*/true));
    }
}

/// Calls `check` with schedules of four generators, once with groups and once with queues
/// by direction.
void for_sent(const std::function<void(const Schedule&)>& check) {
    for (const char* name : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
        for (const int stages : {2, 3, 5})
            for (const int micro_batches : {1, 2, 3, 4, 9}) {
                CAPTURE(name, stages, micro_batches);
                const Schedule work = make_schedule(name, {stages, micro_batches, 1});
                check(with_grouped_messages(work));
                Schedule by_direction = with_messages_in_place(work);
                by_direction.queues = MessageQueues::by_direction;
                check(by_direction);
            }
}

}  // namespace

TEST_CASE("every generator's schedule takes the timer's time on the clock",
          "[pipeline][sim]") {
    for (const std::string& name : schedule_names())
        for (const int stages : {1, 2, 3, 5})
            for (const int rounds : {1, 2, 3}) {
                const int chunks = name == "interleaved" ? 2 : 1;
                const PipelineShape shape{stages, stages * rounds, chunks};
                if (!takes(name, shape)) continue;
                const Schedule schedule = make_schedule(name, shape);
                check_times(schedule, {{5, 4, 3, 0}}, 0);
                check_times(schedule, {{5, 4, 3, 0}}, kMessage);
            }
}

TEST_CASE("groups and queues per direction take the timer's time on the clock",
          "[pipeline][sim]") {
    for_sent([](const Schedule& schedule) {
        if (!find_problem(schedule)) check_times(schedule, {{5, 4, 3, 0}}, kMessage);
    });
}

TEST_CASE("random groups and directions take the timer's time on the clock",
          "[pipeline][sim]") {
    Random random(2);
    int runs = 0;
    for (int i = 0; i < 300; ++i) {
        const Schedule schedule =
            random_schedule(random, {false, true, i % 2 == 0, i % 2 == 1});
        if (find_problem(schedule)) continue;
        check_times(schedule, random_durations(random, schedule.stages, false),
                    random.one_in(3) ? 0 : random.between(1, 9));
        ++runs;
    }
    CHECK(runs > 100);
}

TEST_CASE("a schedule that needs one queue per direction may hang on GPUs: fault F12",
          "[pipeline][sim]") {
    int hazards = 0;
    for_sent([&](const Schedule& schedule) {
        if (find_problem(schedule)) return;
        const bool hazard = needs_directions(schedule);
        const std::string said = message_of<std::exception>([&] {
            run_on_clock(schedule, kMessage, {{4, 4, 2, kMessage}},
                         sim::CheckLevel::full);
        });
        CHECK((said.find("F12") != std::string::npos) == hazard);
        hazards += hazard ? 1 : 0;
    });
    CHECK(hazards > 10);
}

TEST_CASE("random schedules take the timer's time on the clock", "[pipeline][sim]") {
    Random random(1);
    for (int i = 0; i < 300; ++i) {
        RandomScheduleOptions options;
        options.messages = random.one_in(2);
        options.weight_versions = random.one_in(4);
        const Schedule schedule = random_schedule(random, options);
        // The modules here have no gradients, so stages do not meet in reductions.
        if (options.weight_versions &&
            schedule.part_count() < schedule.stages * schedule.chunks)
            continue;
        check_times(schedule, random_durations(random, schedule.stages, false),
                    random.one_in(3) ? 0 : random.between(1, 9));
    }
}
