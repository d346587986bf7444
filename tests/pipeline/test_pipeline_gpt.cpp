// A pipeline of a GPT computes what one device computes.

#include <fmt/format.h>

#include "tests/catch.hpp"
#include "tests/pipeline/generator_shapes.hpp"
#include "tests/pipeline/gpt_pipeline.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Every generator's schedule of p stages and m micro-batches. If the first and the last
/// part share a table, looped-bfs does not go: it reduces that of the last part while the
/// first still waits for gradients.
std::vector<Schedule> all_schedules(int stages, int micro_batches, bool tied) {
    std::vector<Schedule> all;
    for (const std::string& name : schedule_names()) {
        if (!flushes(name) || goes_both_ways(name)) continue;
        for (int chunks = 1; chunks * stages <= 8; ++chunks) {
            const PipelineShape shape{stages, micro_batches, chunks};
            if (tied && name == "looped-bfs" && chunks > 1) continue;
            if (takes(name, shape)) all.push_back(make_schedule(name, shape));
        }
    }
    return all;
}

}  // namespace

TEST_CASE("a pipelined GPT has one device's bits, whatever the schedule",
          "[pipeline][sim]") {
    for (const DType dtype : {DType::f64, DType::f32}) {
        GptTask task = small_gpt();
        task.dtype = dtype;
        const Outcome alone = train_alone(task);
        const std::vector<double> losses = losses_of(alone.report);
        REQUIRE(losses.back() < losses.front());
        for (const int stages : {1, 2, 4})
            for (const Schedule& schedule :
                 all_schedules(stages, task.micro_batches, false)) {
                CAPTURE(schedule.name, stages, schedule.chunks);
                CHECK(train_pipeline(task, schedule).results == alone.results);
            }
    }
}

TEST_CASE("a GPT whose parts lie on two stages trains as on one device",
          "[pipeline][sim]") {
    GptTask task = small_gpt();
    task.micro_batches = 8;
    task.check = sim::CheckLevel::full;
    const Outcome alone = train_alone(task);
    for (const char* name : {"chimera", "dualpipe"})
        for (const int replicas : {1, 2})
            for (const int stages : {2, 4}) {
                if (std::string(name) == "dualpipe" && stages * replicas > 4) continue;
                CAPTURE(name, replicas, stages);
                const Schedule schedule =
                    make_schedule(name, {stages, task.micro_batches / replicas});
                check_alike(train_pipeline(task, schedule, replicas), alone);
            }
}

TEST_CASE("a tied head and its table, stages apart, step alike", "[pipeline][sim]") {
    const GptTask task = small_gpt(/*tied=*/true);
    const Outcome alone = train_alone(task);
    for (const int stages : {1, 2, 4})
        for (const Schedule& schedule : all_schedules(stages, task.micro_batches, true)) {
            CAPTURE(schedule.name, stages, schedule.chunks);
            check_alike(train_pipeline(task, schedule), alone);
        }
}

TEST_CASE("two pipelines side by side have one device's losses and gradients",
          "[pipeline][sim]") {
    for (const bool tied : {false, true}) {
        const GptTask task = small_gpt(tied);
        const Outcome alone = train_alone(task);
        for (const Schedule& schedule : all_schedules(2, task.micro_batches / 2, tied)) {
            CAPTURE(schedule.name, schedule.chunks, tied);
            check_alike(train_pipeline(task, schedule, 2), alone);
        }
    }
}

TEST_CASE("a tie or a reduction that is forgotten is seen against one device",
          "[pipeline][sim]") {
    GptTask tied = small_gpt(/*tied=*/true);
    const Outcome alone = train_alone(tied);
    const Schedule schedule = make_schedule("1f1b", {2, 4, 1});
    tied.forget_tie = true;
    tied.check = sim::CheckLevel::cheap;
    CHECK(difference(train_pipeline(tied, schedule), alone).relative > 1e-3);
    GptTask split = small_gpt();
    const Outcome whole = train_alone(split);
    split.forget_replicas = true;
    split.check = sim::CheckLevel::cheap;
    const Schedule half = make_schedule("1f1b", {2, 2, 1});
    CHECK(difference(train_pipeline(split, half, 2), whole).relative > 1e-3);
}

TEST_CASE("a head finds its table whatever the order of a stage's chunks",
          "[pipeline][sim]") {
    const GptTask task = small_gpt(/*tied=*/true);
    Schedule schedule = make_schedule("interleaved", {1, 4, 2});
    schedule.parts = {{1, 0}};
    for (Instruction& work : schedule.work[0])
        work.chunk = 1 - work.chunk;
    check_alike(train_pipeline(task, schedule), train_alone(task));
}

TEST_CASE("a tied GPT is refused by a schedule that updates in between",
          "[pipeline][errors]") {
    GptTask task = small_gpt(/*tied=*/true);
    task.micro_batches = 2;
    const Schedule schedule =
        written_schedule({2, 2, 1}, {"F0 B0 R U F1 B1 R U", "F0 B0 R U F1 B1 R U"});
    CHECK_THROWS_WITH(
        train_pipeline(task, schedule),
        "rank 0: schedule 'written' updates stage 0's weights before its last "
        "micro-batch is done; a GPT whose head is tied to its table needs "
        "updates at the end only");
}

TEST_CASE("a forgotten tie is a missing reduction to the checker", "[pipeline][sim]") {
    GptTask task = small_gpt(/*tied=*/true);
    task.forget_tie = true;
    task.check = sim::CheckLevel::full;
    const Outcome stopped = train_pipeline(task, make_schedule("1f1b", {4, 4, 1}));
    CHECK(stopped.fault() == "F23");
    CHECK(stopped.stopped->text().find("transformer.wte.weight") != std::string::npos);
}

TEST_CASE("gradients are reduced once a step, after the last micro-batch",
          "[pipeline][sim]") {
    GptTask task = small_gpt();
    task.micro_batches = 8;
    const Outcome result = train_pipeline(task, make_schedule("1f1b", {2, 4, 1}), 2);
    for (const RankReport& rank : result.report.ranks) {
        std::int64_t calls = 0;
        for (const Traffic& traffic : rank.traffic)
            if (traffic.verb == "all_reduce") calls += traffic.calls;
        std::int64_t parameters = 0;
        for (const auto& [name, tensor] : rank.kept)
            if (name.find('/') == std::string::npos) ++parameters;
        CHECK(calls == task.steps * parameters);
    }
}

TEST_CASE("a schedule that never reduces is refused where gradients are shared",
          "[pipeline][errors]") {
    GptTask task = small_gpt();
    Schedule schedule = make_schedule("1f1b", {2, 2, 1});
    for (auto& list : schedule.work)
        std::erase_if(list, [](const Instruction& each) {
            return each.kind == InstructionKind::reduce_gradients;
        });
    CHECK_THROWS_WITH(
        train_pipeline(task, schedule, 2),
        "rank 0: other devices contribute to the gradients of stage 0, chunk 0, but "
        "schedule '1f1b' does not reduce them (R) before stage 0, instruction 9 of 9, "
        "optimizer "
        "step (U)");
}
