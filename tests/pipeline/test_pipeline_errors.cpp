// Mistakes with a pipeline, and the message for each.

#include "src/pipeline/generators.hpp"
#include "src/pipeline/pipeline.hpp"
#include "src/pipeline/validate.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/chain.hpp"
#include "tests/pipeline/written_schedule.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("shared gradients are reduced once and in time", "[pipeline][errors]") {
    const auto said = [](const std::string& work, double learning_rate) {
        ChainOptions options;
        options.learning_rate = learning_rate;
        options.replicas = 2;
        return message_of<std::exception>([&] {
            run_chain(PipelinePlan(written_schedule({1, 2, 1}, {work})), options);
        });
    };
    CHECK(said("F0 B0 F1 B1 R U", 0.1) == "(nothing was thrown)");
    CHECK(said("F0 B0 R U F1 B1 R U", 0.1) == "(nothing was thrown)");
    CHECK(said("F0 B0 F1 B1 U", 0.1)
              .find("does not reduce them (R) before stage 0, instruction 5 of 5") !=
          std::string::npos);
    CHECK(
        said("F0 B0 R F1 B1 R U", 0.1)
            .find("stage 0, instruction 5 of 7, backward of micro-batch 1 (B1): it adds "
                  "to gradients that have been reduced (R) already") !=
        std::string::npos);
    for (const char* twice : {"F0 B0 F1 B1 R R U", "F0 B0 F1 B1 U R"})
        CHECK(said(twice, 0.1)
                  .find("there is nothing to reduce: no backward of its chunk "
                        "stands between it and instruction 5") != std::string::npos);
    // Without an optimizer step, gradients keep adding up.
    CHECK(said("F0 B0 R U F1 B1 R U", 0)
              .find("it adds to gradients that have been reduced (R) already") !=
          std::string::npos);
    CHECK(said("F0 B0 F1 B1", 0).find("before the end") != std::string::npos);
}

TEST_CASE(
    "sends before receives that wait for each other are a deadlock, reported with lines",
    "[pipeline][sim][errors]") {
    const Schedule broken = with_messages_in_place(make_schedule("1f1b", {3, 4, 1}));
    REQUIRE(find_problem(broken));
    REQUIRE_THROWS_WITH(PipelinePlan(broken), find_problem(broken)->sentence);
    const std::string said =
        message_of<std::exception>([&] { run_chain(PipelinePlan::unchecked(broken)); });
    CAPTURE(said);
    CHECK(said.find("F14") != std::string::npos);
    CHECK(said.find("src/pipeline/pipeline.cpp") != std::string::npos);
}

TEST_CASE("an unchecked schedule must at least have valid numbers and messages",
          "[pipeline][errors]") {
    Schedule schedule = make_schedule("gpipe", {2, 2, 1});
    CHECK_THROWS_WITH(PipelinePlan::unchecked(schedule),
                      "schedule 'gpipe' has no messages; with_messages_in_place() adds "
                      "some");
    schedule = with_messages_in_place(schedule);
    schedule.work[1][0].chunk = 7;
    CHECK_THROWS_WITH(
        PipelinePlan::unchecked(schedule),
        "stage 1, instruction 1 of 10, receive of an activation of "
        "micro-batch 0 (RA0.7): there is no chunk 7; a stage has 1, counted "
        "from 0");
}

TEST_CASE("a pipeline's inputs must exist and fit", "[pipeline][errors]") {
    const PipelinePlan plan(make_schedule("gpipe", {2, 2, 1}));
    const auto said = [&](const std::function<void(Rank&, Pipeline&)>& use,
                          const PartBoundary& boundary = chain_boundary()) {
        return message_of<std::exception>([&] {
            sim::make_cluster(2)->run([&](Rank& rank) {
                const auto part = make_chain_part(rank.device(), rank.index());
                Pipeline pipeline(rank.device(), rank.world(), plan, {part.get()},
                                  boundary);
                use(rank, pipeline);
            });
        });
    };
    const auto tells = [](const std::string& text, const std::string& words) {
        CAPTURE(text);
        CHECK(text.find(words) != std::string::npos);
    };
    tells(message_of<std::exception>([&] {
              sim::make_cluster(2)->run([&](Rank& rank) {
                  Pipeline(rank.device(), rank.world(), plan, {nullptr},
                           chain_boundary());
              });
          }),
          "chunk 0 of stage 0 is null; a module is expected");
    tells(said([](Rank&, Pipeline&) {}, {}),
          "a pipeline needs a function that gives the shape of the tensor between two "
          "parts; none was given");
    tells(said([](Rank&, Pipeline& pipeline) { pipeline.update_by({nullptr}); }),
          "the optimizer of chunk 0 is null; one is expected");
    tells(said([](Rank& rank, Pipeline& pipeline) {
              auto batches = chain_batches(rank.device(), 2);
              batches[1].input = {};
              pipeline.run(mean_squared_error, batches);
          }),
          "stage 0 reads the inputs, but micro-batch 1 has no input");
    tells(said([](Rank& rank, Pipeline& pipeline) {
              const Loss none = [](Device&, const Tensor&, const Tensor&, double) {
                  return LossResult{};
              };
              pipeline.run(none, chain_batches(rank.device(), 2));
          }),
          "for micro-batch 0 the loss function returned no value");
    tells(said(
              [](Rank& rank, Pipeline& pipeline) {
                  pipeline.run(mean_squared_error, chain_batches(rank.device(), 2));
              },
              {[](const MicroBatch&) {
                   return Shape{4, 2};
               },
               DType::f64}),
          "part 0 of the model, on stage 0, made (2, 3) f64 of micro-batch 0, but the "
          "tensor between two parts is declared as (4, 2) f64");
}

TEST_CASE("an optimizer that the schedule never calls is refused", "[pipeline][errors]") {
    ChainOptions options;
    options.learning_rate = 0.1;
    CHECK(
        message_of<std::exception>([&] {
            run_chain(PipelinePlan(written_schedule({1, 1, 1}, {"F0 B0 R"})), options);
        })
            .find("schedule 'written' never updates chunk 0 of stage 0: add an optimizer "
                  "step (U), or step after run() instead of update_by()") !=
        std::string::npos);
}

TEST_CASE("a pipeline that does not fit its schedule is refused in one sentence",
          "[pipeline][errors]") {
    const PipelinePlan plan(make_schedule("gpipe", {2, 3, 1}));
    const auto said = [&](const std::function<void(Rank&)>& program) {
        return message_of<std::exception>([&] { sim::make_cluster(2)->run(program); });
    };
    CHECK(said([&](Rank& rank) {
              Pipeline(rank.device(), rank.world(), plan, {}, chain_boundary());
          })
              .find("schedule 'gpipe' has 1 chunks a stage, but stage 0 was given 0 "
                    "modules; one for each is expected") != std::string::npos);
    CHECK(
        message_of<std::exception>([&] {
            sim::make_cluster(3)->run([&](Rank& rank) {
                const auto part = make_chain_part(rank.device(), 0);
                Pipeline(rank.device(), rank.world(), plan, {part.get()},
                         chain_boundary());
            });
        })
            .find("schedule 'gpipe' has 2 stages, but 'world' has 3 ranks; one for each "
                  "is expected") != std::string::npos);
    CHECK(said([&](Rank& rank) {
              const auto part = make_chain_part(rank.device(), 0);
              Pipeline pipeline(rank.device(), rank.world(), plan, {part.get()},
                                chain_boundary());
              pipeline.run(mean_squared_error, chain_batches(rank.device(), 2));
          }).find("schedule 'gpipe' has 3 micro-batches, but 2 were given") !=
          std::string::npos);
    CHECK(said([&](Rank& rank) {
              const auto part = make_chain_part(rank.device(), 0);
              Pipeline pipeline(rank.device(), rank.world(), plan, {part.get()},
                                chain_boundary());
              pipeline.update_by({});
          }).find("0 optimizers for 1 chunks; one for each is expected") !=
          std::string::npos);
}
