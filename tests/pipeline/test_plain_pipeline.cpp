// The plain executor of schedules gives the same results as one device.

#include "src/pipeline/plain_pipeline.hpp"
#include "src/trial/training.hpp"
#include "tests/catch.hpp"
#include "tests/pipeline/chain.hpp"
#include "tests/pipeline/generator_shapes.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

Outcome run_chain_plainly(const Schedule& schedule) {
    const PipelinePlan plan(schedule);
    return outcome_of(*sim::make_cluster(schedule.stages), [&](Rank& rank) {
        const auto part = make_chain_part(rank.device(), rank.index());
        PlainPipeline pipeline(rank.device(), rank.world(), plan, *part,
                               chain_boundary());
        const auto batches =
            chain_batches(rank.device(), schedule.micro_batches, /*uneven=*/true);
        const Tensor loss = pipeline.run(mean_squared_error, batches);
        if (loss) rank.keep_value("loss", rank.device().peek(loss).at(0));
        keep_parameters(rank, part->parameters(), "grad/", &Parameter::gradient);
        keep_parameters(rank, part->parameters(), "value/", &Parameter::value);
    });
}

}  // namespace

TEST_CASE("A plain executor of a schedule gives one device's gradients", "[pipeline]") {
    int followed = 0, grouped = 0;
    for (const PipelineShape shape : {PipelineShape{1, 3}, {2, 4}, {4, 4}, {3, 8}})
        for (const std::string& name : names_for(shape)) {
            const Schedule schedule = make_schedule(name, shape);
            if (schedule.chunks > 1 || !flushes(name)) continue;
            CAPTURE(name, shape.stages, shape.micro_batches);
            const Outcome alone =
                run_chain(shape.stages, shape.micro_batches, /*uneven=*/true);
            check_alike(run_chain_plainly(schedule), alone);
            ++followed;
            // Most people write an activation and a gradient in one group. Tests that,
            // too.
            if (name != "1f1b") continue;
            check_alike(run_chain_plainly(with_grouped_messages(schedule)), alone);
            ++grouped;
        }
    CHECK(followed >= 20);
    CHECK(grouped == 4);
}

TEST_CASE("A plain executor holds no more than the schedule says", "[pipeline]") {
    const auto most = [](int micro_batches) {
        const RunReport report =
            run_chain_plainly(make_schedule("1f1b", {4, micro_batches})).report;
        return report.ranks[1].memory.peak_of(MemoryCategory::activations);
    };
    CHECK(most(24) == most(12));
}

TEST_CASE("A plain executor refuses schedules that it cannot run", "[pipeline][errors]") {
    for (const char* name : {"zb-v", "pipedream"}) {
        CAPTURE(name);
        CHECK_THAT(refusal([&] {
                       run_chain_plainly(make_schedule(name, {2, 4}));
                   }),
                   says("2 stages; 2 are expected, with part s on stage s, one queue of "
                        "messages, and R and U only at the end"));
    }
}

}  // namespace lockstep::test
