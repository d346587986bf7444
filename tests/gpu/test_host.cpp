// The host of a GPU: memory, arithmetic, and copies that overlap with the GPU's work.

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/nn/optimizer.hpp"
#include "src/nn/parameter.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/forked_cluster.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kCount = 5000;

/// Returns numbers that depend on the rank and the position.
HostTensor numbers(int rank, double factor) {
    HostTensor values({kCount}, DType::f32);
    for (std::int64_t i = 0; i < kCount; ++i)
        values.set(i, factor * static_cast<double>(
                                   (i * 37 + std::int64_t{11} * rank) % 101 - 50));
    return values;
}

Tensor pinned(Device& host) {
    const PinnedMemory scope(host);
    return host.empty({kCount}, DType::f32);
}

/// Checks that a program's ranks get the same numbers and bytes from GPUs and simulator.
void is_alike(int ranks, const Program& program) {
    if (!has_gpus_for(ranks)) SKIP(lacking_gpus(ranks));
    const RunReport real = make_forked_cluster(ranks)->run(program);
    const RunReport simulated = sim::make_cluster(ranks)->run(program);
    for (int r = 0; r < ranks; ++r) {
        const RankReport& mine = real.ranks[static_cast<std::size_t>(r)];
        const RankReport& theirs = simulated.ranks[static_cast<std::size_t>(r)];
        CHECK(mine.kept == theirs.kept);
        CHECK(mine.memory.peak == theirs.memory.peak);
        CHECK(mine.host.memory.peak == theirs.host.memory.peak);
        CHECK(mine.host.memory.category_peak == theirs.host.memory.category_peak);
        CHECK(mine.host.bytes_to_host == theirs.host.bytes_to_host);
        CHECK(mine.host.bytes_to_device == theirs.host.bytes_to_device);
        CHECK(mine.host.flops == theirs.host.flops);
    }
}

std::string failure_of(const Program& program, ForkedOptions options = {}) {
    try {
        make_forked_cluster(1, options)->run(program);
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return {};
}

}  // namespace

TEST_CASE("A GPU's host steps the optimizer with the simulator's bits", "[gpu][host]") {
    for (const bool is_pinned : {true, false})
        is_alike(2, [is_pinned](Rank& rank) {
            Device& device = rank.device();
            Device& host = rank.host();
            const Tensor value = device.zeros({kCount}, DType::f32);
            const Tensor gradient = device.empty({kCount}, DType::f32);
            host.set_pins(is_pinned);
            Parameter master("w", host.zeros({kCount}, DType::f32),
                             host.zeros({kCount}, DType::f32));
            host.set_pins(false);
            AdamW optimizer({&master});
            for (int step = 0; step < 3; ++step) {
                device.upload_into(gradient, numbers(rank.index(), 1 + step));
                rank.world().all_reduce(gradient).wait();
                device.start_copy(master.gradient, gradient).wait();
                optimizer.step();
                device.start_copy(value, master.value).wait();
            }
            rank.keep("w", value);
            rank.keep("master", master.value);
        });
}

TEST_CASE("Copies of one direction run in order, after the operations requested before",
          "[gpu][host]") {
    is_alike(1, [](Rank& rank) {
        Device& device = rank.device();
        const Tensor there = device.upload(numbers(0, 1));
        const Tensor back = device.zeros({kCount}, DType::f32);
        const Tensor first = pinned(rank.host());
        const Tensor second = pinned(rank.host());
        std::vector<Work> works;
        for (int i = 0; i < 20; ++i)
            device.scale(there, 1.0625);
        works.push_back(device.start_copy(first, there));
        works.push_back(device.start_copy(second.slice(0, 10), there.slice(7, 10)));
        works[0].wait();
        works.push_back(device.start_copy(back, first));
        works[1].wait();
        works[2].wait();
        device.scale(back, 2);
        rank.keep("first", first);
        rank.keep("second", second.slice(0, 10));
        rank.keep("back", back);
        // Released memory is used again, and does not count as memory of a step.
        for (int i = 0; i < 3; ++i) {
            const Tensor again = pinned(rank.host());
            device.start_copy(again, back).wait();
            rank.host().scale(again, i);
            rank.keep("again " + std::to_string(i), again);
        }
        // A copy of no elements.
        device.start_copy(first.slice(0, 0), there.slice(0, 0)).wait();
    });
}

TEST_CASE("A copy keeps its operands alive after the program drops them", "[gpu][host]") {
    if (!has_gpus_for(1)) SKIP(lacking_gpus(1));
    const RunReport report = make_forked_cluster(1)->run([](Rank& rank) {
        for (int i = 0; i < 50; ++i) {
            const Tensor there = rank.device().zeros({kCount}, DType::f32);
            rank.device().fill(there, i);
            static_cast<void>(
                rank.device().start_copy(pinned(rank.host()), there.flat()));
        }
        rank.keep_value("ended", 1);
    });
    CHECK(report.ranks[0].host.bytes_to_host == 50 * std::int64_t{4} * kCount);
    CHECK(report.ranks[0].series.at("ended")[0] == 1);
}

TEST_CASE("wait_any accepts both copies and NCCL's messages", "[gpu][host]") {
    is_alike(2, [](Rank& rank) {
        const Tensor there = rank.device().upload(numbers(rank.index(), 1));
        const Tensor sum = rank.device().upload(numbers(rank.index(), 2));
        const Tensor here = pinned(rank.host());
        std::vector<Work> works;
        works.push_back(rank.world().all_reduce(sum));
        works.push_back(rank.device().start_copy(here, there));
        wait_any(works);
        wait_any(works);
        rank.host().add(here, here, 1);
        rank.keep("here", here);
        rank.keep("sum", sum);
    });
}

TEST_CASE("A trace has the host's operations, and copies on queues of their own",
          "[gpu][host]") {
    if (!has_gpus_for(1)) SKIP(lacking_gpus(1));
    ForkedOptions options;
    options.trace = true;
    const RunReport report = make_forked_cluster(1, options)->run([](Rank& rank) {
        const Tensor there = rank.device().upload(numbers(0, 1));
        const Tensor here = pinned(rank.host());
        rank.device().start_copy(here, there).wait();
        const PhaseScope phase(rank.host(), Phase::update, 4);
        rank.host().scale(here, 2);
        rank.device().start_copy(there, here).wait();
    });
    const auto event = [&](const std::string& queue, const std::string& name) {
        const auto found = std::ranges::find_if(report.trace, [&](const TraceEvent& one) {
            return one.queue == queue && one.name == name;
        });
        REQUIRE(found != report.trace.end());
        return *found;
    };
    const TraceEvent down = event("copy to host", "copy");
    const TraceEvent scale = event("host", "scale");
    const TraceEvent phase = event("host", "update");
    const TraceEvent up = event("copy to device", "copy");
    CHECK(down.bytes == 4 * kCount);
    CHECK(scale.micro_batch == 4);
    CHECK(phase.start <= scale.start);
    CHECK(scale.end <= phase.end);
    CHECK(scale.start < scale.end);
    CHECK(report.ranks[0].host.compute == scale.end - scale.start);
    CHECK(report.ranks[0].time.copy >= down.end - down.start + up.end - up.start);
    CHECK(report.makespan() >= phase.end);
}

TEST_CASE("A GPU's host refuses the same calls as a virtual host", "[gpu][host]") {
    if (!has_gpus_for(1)) SKIP(lacking_gpus(1));
    const std::string other_type = failure_of([](Rank& rank) {
        const Tensor there = rank.device().zeros({4}, DType::f32);
        const Tensor here = rank.host().zeros({4}, DType::i32);
        rank.device().start_copy(there, here).wait();
    });
    CHECK(other_type.find("source is i32, but destination is f32") != std::string::npos);
    const std::string mixed = failure_of([](Rank& rank) {
        const Tensor there = rank.device().zeros({4}, DType::f32);
        rank.device().add(there, rank.host().zeros({4}, DType::f32));
    });
    CHECK(mixed.find("source") != std::string::npos);
    ForkedOptions options;
    options.has_host = false;
    const std::string none = failure_of([](Rank& rank) { rank.host(); }, options);
    CHECK(none.find("host: this device was made without a host") != std::string::npos);
}

TEST_CASE("A program that fails between copies reports its error, not a hang",
          "[gpu][host]") {
    if (!has_gpus_for(1)) SKIP(lacking_gpus(1));
    const std::string what = failure_of([](Rank& rank) {
        const Tensor there = rank.device().zeros({kCount}, DType::f32);
        const Work copy = rank.device().start_copy(pinned(rank.host()), there);
        throw UsageError("enough");
    });
    CHECK(what.find("enough") != std::string::npos);
}

}  // namespace lockstep::test
