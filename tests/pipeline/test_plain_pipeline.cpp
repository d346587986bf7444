// The plain executor of schedules does what Pipeline does.

#include "src/pipeline/plain_pipeline.hpp"
#include "src/trial/training.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/chain.hpp"
#include "tests/pipeline/generator_shapes.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

Outcome run_chain_plainly(const Schedule& schedule) {
    return outcome_of(*sim::make_cluster(schedule.stages), [&](Rank& rank) {
        const auto part = make_chain_part(rank.device(), rank.index());
        const auto batches =
            chain_batches(rank.device(), schedule.micro_batches, /*uneven=*/true);
        const Tensor loss = run_plainly(rank.device(), rank.world(), schedule, *part,
                                        chain_boundary(), mean_squared_error, batches);
        if (loss) rank.keep_value("loss", rank.device().peek(loss).at(0));
        keep_parameters(rank, part->parameters(), "grad/", &Parameter::gradient);
        keep_parameters(rank, part->parameters(), "value/", &Parameter::value);
    });
}

}  // namespace

TEST_CASE("A schedule that is followed plainly leaves one device's gradients",
          "[pipeline]") {
    int followed = 0;
    for (const PipelineShape shape : {PipelineShape{1, 3}, {2, 4}, {4, 4}, {3, 8}})
        for (const std::string& name : names_for(shape)) {
            if (!flushes(name)) continue;
            const Schedule schedule = make_schedule(name, shape);
            if (schedule.chunks > 1) continue;
            CAPTURE(name, shape.stages, shape.micro_batches);
            const Outcome alone =
                run_chain(shape.stages, shape.micro_batches, /*uneven=*/true);
            check_alike(run_chain_plainly(with_messages(schedule)), alone);
            ++followed;
        }
    CHECK(followed >= 20);
}

TEST_CASE("What a plain executor cannot follow is refused", "[pipeline][errors]") {
    CHECK_THAT(refusal([] {
                   run_chain_plainly(with_messages(make_schedule("zb-v", {2, 4})));
               }),
               says("zb-v has 2 stages of 2 chunks and 4 micro-batches; one chunk, 2 "
                    "stages and 4 micro-batches are expected"));
}

}  // namespace lockstep::test
