#include "sim/cluster.hpp"
#include "src/report/causes.hpp"
#include "tests/catch.hpp"

using namespace lockstep;

namespace {

RunReport run_of_two(const Program& program) {
    sim::ClusterOptions options;
    options.ranks = 2;
    options.trace = true;
    options.spec = load_cluster("classroom");
    return sim::make_cluster(std::move(options))->run(program);
}

void multiply(Rank& rank, int times) {
    Device& device = rank.device();
    const Tensor values = device.zeros({64, 64}, DType::f32);
    const Tensor product = device.zeros({64, 64}, DType::f32);
    for (; times > 0; --times)
        device.matmul_into(product, values, values);
}

/// Two devices that both need a sum. The first device computes longer.
RunReport sum_of_two() {
    return run_of_two([](Rank& rank) {
        const Tensor sum = rank.device().zeros({64, 64}, DType::f32);
        multiply(rank, rank.index() == 0 ? 3 : 1);
        rank.world().all_reduce(sum, Reduction::sum).wait();
        rank.device().scale(sum, 0.5);
    });
}

const TraceEvent& event(const RunReport& report, int rank, const std::string& name) {
    for (const TraceEvent& each : report.trace)
        if (each.rank == rank && each.kind != "wait" && each.name.starts_with(name))
            return each;
    FAIL("there is no " << name);
    return report.trace.front();
}

}  // namespace

TEST_CASE("a communication waited for the rank that came last", "[report]") {
    const RunReport report = sum_of_two();
    const Causes causes(report);
    for (const int rank : {0, 1}) {
        const TraceEvent& sum = event(report, rank, "all_reduce");
        const Cause cause = causes.cause_of(sum);
        CHECK(cause.words == "it began when device 0 arrived last");
        REQUIRE(cause.events.size() == 1);
        const TraceEvent& before = report.trace.at(cause.events.front());
        CHECK(before.rank == 0);
        CHECK(before.name == "matmul");
        CHECK(before.end == sum.start);
    }
}

TEST_CASE("a computation waited for the communication before it", "[report]") {
    const RunReport report = sum_of_two();
    const Causes causes(report);
    for (const int rank : {0, 1}) {
        const TraceEvent& scaled = event(report, rank, "scale");
        const Cause cause = causes.cause_of(scaled);
        CHECK(cause.words.find(" for all_reduce") != cause.words.npos);
        REQUIRE(cause.events.size() == 1);
        const TraceEvent& before = report.trace.at(cause.events.front());
        CHECK(before.kind == "communication");
        CHECK(before.rank == rank);
        CHECK(before.end == scaled.start);
    }
    CHECK(causes.cause_of(event(report, 1, "matmul")).words.empty());
}

TEST_CASE("a rank that came early and then computed did not come last", "[report]") {
    const RunReport report = run_of_two([](Rank& rank) {
        const Tensor sum = rank.device().zeros({64, 64}, DType::f32);
        multiply(rank, rank.index() == 0 ? 1 : 2);
        Work work = rank.world().all_reduce(sum, Reduction::sum);
        if (rank.index() == 0) multiply(rank, 1);
        work.wait();
    });
    const Cause cause = Causes(report).cause_of(event(report, 0, "all_reduce"));
    CHECK(cause.words == "it began when device 1 arrived last");
    REQUIRE(cause.events.size() == 1);
    CHECK(report.trace.at(cause.events.front()).rank == 1);
}

TEST_CASE("a communication may begin after another communication", "[report]") {
    const RunReport report = run_of_two([](Rank& rank) {
        const Tensor sum = rank.device().zeros({64, 64}, DType::f32);
        rank.world().all_reduce(sum, Reduction::sum).wait();
        rank.world().broadcast(sum, 0).wait();
    });
    const Cause cause = Causes(report).cause_of(event(report, 1, "broadcast"));
    CHECK(cause.words == "it began when all its devices arrived, at the same time");
    REQUIRE(cause.events.size() == 2);
    for (const std::size_t before : cause.events)
        CHECK(report.trace.at(before).name == "all_reduce");
}

TEST_CASE("an operation waits for the one before it in its queue", "[report]") {
    const RunReport report = run_of_two([](Rank& rank) {
        const Tensor sum = rank.device().zeros({64, 64}, DType::f32);
        Work first = rank.world().all_reduce(sum, Reduction::sum);
        Work second = rank.world().broadcast(sum, 0);
        first.wait();
        second.wait();
    });
    const Cause cause = Causes(report).cause_of(event(report, 1, "broadcast"));
    CHECK(cause.words == "it began when the previous all_reduce in its queue ended");
    CHECK(cause.events.size() == 1);
}
