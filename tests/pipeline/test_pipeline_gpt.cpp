// A pipeline of a GPT computes the same as one device.

#include "src/comm/mesh.hpp"
#include "src/nn/losses.hpp"
#include "src/pipeline/pipeline_gpt.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/gpt_training.hpp"
#include "tests/pipeline/generator_shapes.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Eight layers, one for each of up to eight parts. A micro-batch has two sequences.
Lessons small_gpt(bool tied = false, int micro_batches = 4) {
    Lessons lessons{{/*vocabulary=*/11,
                     /*context=*/6,
                     /*layers=*/4,
                     {/*hidden=*/8, /*heads=*/2}},
                    /*length=*/5,
                    /*batch=*/std::int64_t{2} * micro_batches,
                    /*steps=*/3,
                    DType::f64,
                    micro_batches};
    lessons.sizes.tied = tied;
    return lessons;
}

/// How to train a GPT by a schedule.
struct Pipelined {
    Schedule schedule;
    int replicas = 1;  ///< they divide the micro-batches
    sim::CheckLevel check = sim::check_level_asked();
    bool forgets_tie = false;
    bool forgets_replicas = false;
};

/// Keeps what train() keeps. Unless something is forgotten, replicas and copies of a tied
/// table must have the same bits.
Outcome train_pipeline(const Lessons& lessons, const Pipelined& pipelined) {
    const Schedule& schedule = pipelined.schedule;
    const PipelinePlan plan(schedule);
    const auto cut = cut_gpt(lessons.sizes, schedule);
    sim::ClusterOptions options;
    options.ranks = schedule.stages * pipelined.replicas;
    options.check = pipelined.check;
    const auto program = [&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(),
                        {{"pp", schedule.stages}, {"dp", pipelined.replicas}});
        Communicator& line = mesh["pp"];
        const GptStage stage = make_gpt_stage({device, lessons.dtype, 5, ""},
                                              lessons.sizes, schedule, line.rank(), cut);
        Pipeline pipeline(device, line, plan, stage.modules(),
                          gpt_boundary(lessons.sizes, lessons.dtype));
        std::unique_ptr<Communicator> sharers;
        if (!pipelined.forgets_tie) sharers = tie_gpt(pipeline, stage, schedule, line);
        pipeline.tie_copies();
        if (pipelined.replicas > 1 && !pipelined.forgets_replicas)
            pipeline.reduce_over(mesh["dp"]);
        std::vector<std::unique_ptr<Optimizer>> optimizers;
        std::vector<Optimizer*> updates;
        for (const auto& chunk : stage.chunks) {
            optimizers.push_back(make_optimizer<Sgd>(chunk->parameters(), kMomentumSgd));
            updates.push_back(optimizers.back().get());
        }
        pipeline.update_by(updates);
        const Share own{chunk(lessons.batch, pipelined.replicas, mesh.coordinate("dp"))};
        train(rank, stage.parameters(), lessons.steps, [&](int step) {
            return pipeline.run(cross_entropy_loss,
                                batches_of(device, lessons, step, own,
                                           lessons.micro_batches / pipelined.replicas));
        });
    };
    const bool forgets = pipelined.forgets_tie || pipelined.forgets_replicas;
    return outcome_of(*sim::make_cluster(options), program,
                      forgets ? Mistakes::kept : Mistakes::thrown);
}

/// Returns every generator's schedule of p stages and m micro-batches. If the first and
/// last part share a table, looped-bfs is left out: it reduces the last part's gradients
/// before the first part's gradients are complete.
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
        Lessons task = small_gpt();
        task.dtype = dtype;
        const Outcome alone = train_alone(task);
        const std::vector<double> losses = losses_of(alone.report);
        REQUIRE(losses.back() < losses.front());
        for (const int stages : {1, 2, 4})
            for (const Schedule& schedule :
                 all_schedules(stages, task.micro_batches, false)) {
                CAPTURE(schedule.name, stages, schedule.chunks);
                CHECK(train_pipeline(task, {schedule}).results == alone.results);
            }
    }
}

TEST_CASE("a GPT with parts on two stages each trains as on one device",
          "[pipeline][sim]") {
    const Lessons task = small_gpt(/*tied=*/false, /*micro_batches=*/8);
    const Outcome alone = train_alone(task);
    for (const char* name : {"chimera", "dualpipe"})
        for (const int replicas : {1, 2})
            for (const int stages : {2, 4}) {
                if (std::string(name) == "dualpipe" && stages * replicas > 4) continue;
                CAPTURE(name, replicas, stages);
                const Schedule schedule =
                    make_schedule(name, {stages, task.micro_batches / replicas});
                check_alike(
                    train_pipeline(task, {schedule, replicas, sim::CheckLevel::full}),
                    alone);
            }
}

TEST_CASE("a tied head and its table on different stages make equal steps",
          "[pipeline][sim]") {
    const Lessons task = small_gpt(/*tied=*/true);
    const Outcome alone = train_alone(task);
    for (const int stages : {1, 2, 4})
        for (const Schedule& schedule : all_schedules(stages, task.micro_batches, true)) {
            CAPTURE(schedule.name, stages, schedule.chunks);
            check_alike(train_pipeline(task, {schedule}), alone);
        }
}

TEST_CASE("two pipelines side by side have one device's losses and gradients",
          "[pipeline][sim]") {
    for (const bool tied : {false, true}) {
        const Lessons task = small_gpt(tied);
        const Outcome alone = train_alone(task);
        for (const Schedule& schedule : all_schedules(2, task.micro_batches / 2, tied)) {
            CAPTURE(schedule.name, schedule.chunks, tied);
            check_alike(train_pipeline(task, {schedule, 2}), alone);
        }
    }
}

TEST_CASE("a forgotten tie or reduction differs from one device", "[pipeline][sim]") {
    const auto far = [](const Lessons& task, const Pipelined& forgetful) {
        return difference(train_pipeline(task, forgetful), train_alone(task)).relative;
    };
    Pipelined pipelined{make_schedule("1f1b", {2, 4, 1}), 1, sim::CheckLevel::cheap};
    pipelined.forgets_tie = true;
    CHECK(far(small_gpt(/*tied=*/true), pipelined) > 1e-3);
    Pipelined split{make_schedule("1f1b", {2, 2, 1}), 2, sim::CheckLevel::cheap};
    split.forgets_replicas = true;
    CHECK(far(small_gpt(), split) > 1e-3);
}

TEST_CASE("a head finds its table in any order of a stage's chunks", "[pipeline][sim]") {
    const Lessons task = small_gpt(/*tied=*/true);
    Schedule schedule = make_schedule("interleaved", {1, 4, 2});
    schedule.parts = {{1, 0}};
    for (Instruction& work : schedule.work[0])
        work.chunk = 1 - work.chunk;
    check_alike(train_pipeline(task, {schedule}), train_alone(task));
}

TEST_CASE("a tied GPT is refused by a schedule that updates in between",
          "[pipeline][errors]") {
    const Lessons task = small_gpt(/*tied=*/true, /*micro_batches=*/2);
    const Schedule schedule =
        written_schedule({2, 2, 1}, {"F0 B0 R U F1 B1 R U", "F0 B0 R U F1 B1 R U"});
    CHECK_THROWS_WITH(
        train_pipeline(task, {schedule}),
        "rank 0: schedule 'written' updates stage 0's weights before its last "
        "micro-batch is done; a GPT whose head is tied to its table needs "
        "updates at the end only");
}

TEST_CASE("the checker calls a forgotten tie a missing reduction", "[pipeline][sim]") {
    Pipelined pipelined{make_schedule("1f1b", {4, 4, 1}), 1, sim::CheckLevel::full};
    pipelined.forgets_tie = true;
    const Outcome stopped = train_pipeline(small_gpt(/*tied=*/true), pipelined);
    CHECK(stopped.fault() == "F23");
    CHECK(stopped.stopped->text().find("transformer.wte.weight") != std::string::npos);
}

TEST_CASE("gradients are reduced once a step, after the last micro-batch",
          "[pipeline][sim]") {
    const Lessons task = small_gpt(/*tied=*/false, /*micro_batches=*/8);
    const Outcome result = train_pipeline(task, {make_schedule("1f1b", {2, 4, 1}), 2});
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

TEST_CASE("a schedule without a reduction is refused if gradients are shared",
          "[pipeline][errors]") {
    Schedule schedule = make_schedule("1f1b", {2, 2, 1});
    for (auto& list : schedule.work)
        std::erase_if(list, [](const Instruction& each) {
            return each.kind == InstructionKind::reduce_gradients;
        });
    CHECK_THROWS_WITH(
        train_pipeline(small_gpt(), {schedule, 2}),
        "rank 0: other devices contribute to the gradients of stage 0, chunk 0, but "
        "schedule '1f1b' does not reduce them (R) before stage 0, instruction 9 of 9, "
        "optimizer "
        "step (U)");
}
