// The host as a device: its clock, its memory, and a copy queue for each direction.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/nn/optimizer.hpp"
#include "src/nn/parameter.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

/// With these figures each time below is a whole number of picoseconds.
ClusterSpec spec() {
    ClusterSpec spec = load_cluster("classroom");
    spec.launch_seconds = 0;
    spec.host_copy = {1e-6, 8e9};
    spec.host = {100e9, 50e9, 16e9, 64 * kMiB};
    return spec;
}

RunReport run(const Program& program, int ranks = 1,
              const ClusterSpec& cluster = spec()) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = cluster;
    options.trace = true;
    return sim::make_cluster(std::move(options))->run(program);
}

/// The time of a copy over the link.
Picoseconds copy_time(std::int64_t bytes, const ClusterSpec& cluster = spec()) {
    return message_time(cluster.host_copy, bytes);
}

Tensor pinned(Device& host, Shape shape, DType dtype = DType::f32) {
    const PinnedMemory scope(host);
    return host.empty(shape, dtype);
}

/// Rank, queue, start and end of a copy.
using CopySpan = std::tuple<int, std::string, Picoseconds, Picoseconds>;

std::vector<Picoseconds> ends_of(const std::vector<CopySpan>& spans, int rank,
                                 const std::string& queue) {
    std::vector<Picoseconds> ends;
    for (const auto& [owner, name, start, end] : spans)
        if (owner == rank && name == queue) ends.push_back(end);
    return ends;
}

}  // namespace

TEST_CASE("A copy overlaps with a product, or runs after it if the program says so",
          "[sim][host]") {
    // On an H100 the product takes 2.05 ms, and the copy 1.35 ms.
    const ClusterSpec h100 = load_cluster("h100-data-sheet");
    const auto both = [&](bool ordered) {
        return run(
            [&](Rank& rank) {
                Device& device = rank.device();
                const Tensor a = device.zeros({4096, 4096}, DType::f32);
                const Tensor there = device.zeros({16 * kMiB}, DType::f32);
                const Tensor here = pinned(device.host(), {16 * kMiB});
                if (!ordered) {
                    Work copy = device.start_copy(here, there);
                    const Tensor product = device.matmul(a, a);
                    copy.wait();
                } else {
                    const Tensor product = device.matmul(a, a);
                    device.start_copy(here, there).wait();
                }
            },
            1, h100);
    };
    const auto zeros = operation_time(h100, 0, 64 * kMiB, DType::f32);
    const auto product = operation_time(h100, std::int64_t{2} * 4096 * 4096 * 4096,
                                        std::int64_t{3} * 64 * kMiB, DType::f32);
    const auto copy = copy_time(64 * kMiB, h100);
    CHECK(product / 10'000'000 == 205);
    CHECK(copy / 10'000'000 == 135);
    CHECK(both(false).makespan() == 2 * zeros + std::max(product, copy));
    CHECK(both(true).makespan() == 2 * zeros + product + copy);
}

TEST_CASE(
    "Copies in one direction wait in a queue; copies in the other do not wait for them",
    "[sim][host]") {
    const RunReport report = run([](Rank& rank) {
        Device& device = rank.device();
        const Tensor there = device.empty({kMiB}, DType::f32);
        const Tensor here = pinned(rank.host(), {4 * kMiB});
        std::vector<Work> works;
        works.push_back(device.start_copy(here.slice(0, kMiB), there));
        works.push_back(device.start_copy(here.slice(kMiB, kMiB), there));
        const Tensor back = device.empty({kMiB}, DType::f32);
        works.push_back(device.start_copy(back, here.slice(2 * kMiB, kMiB)));
        for (Work& work : works)
            work.wait();
    });
    CHECK(report.makespan() == 2 * copy_time(4 * kMiB));
    CHECK(report.ranks[0].time.copy == 3 * copy_time(4 * kMiB));
    CHECK(report.ranks[0].host.bytes_to_host == 8 * kMiB);
    CHECK(report.ranks[0].host.bytes_to_device == 4 * kMiB);
    CHECK(report.bytes_sent() == 0);
}

TEST_CASE("Memory that is not pinned is staged by the host, and the program waits",
          "[sim][host]") {
    const Picoseconds staging = staging_time(spec().host, 4 * kMiB);
    CHECK(staging == picoseconds(2.0 * 4 * kMiB / 16e9));
    for (const bool to_host : {false, true}) {
        CAPTURE(to_host);
        const RunReport report = run([&](Rank& rank) {
            Device& device = rank.device();
            const Tensor there = device.empty({kMiB}, DType::f32);
            const Tensor here = rank.host().empty({kMiB}, DType::f32);
            Work copy =
                to_host ? device.start_copy(here, there) : device.start_copy(there, here);
            // The copy has ended when the call returns, so the fill does not wait for it.
            device.fill(there, 1);
            copy.wait();
        });
        const auto fill = operation_time(spec(), 0, 4 * kMiB, DType::f32);
        CHECK(report.makespan() == staging + copy_time(4 * kMiB) + fill);
        CHECK(report.ranks[0].host.compute == staging);
    }
}

TEST_CASE("The device waits for the host's work only if its own operation comes later",
          "[sim][host]") {
    const auto on_host = operation_time(spec().host, 0, 4 * kMiB, DType::f32);
    const auto on_device = operation_time(spec(), 0, 40 * kMiB, DType::f32);
    REQUIRE(on_host != on_device);
    const auto time = [](bool device_first) {
        return run([&](Rank& rank) {
            const Tensor there = rank.device().empty({10 * kMiB}, DType::f32);
            const Tensor here = rank.host().empty({kMiB}, DType::f32);
            if (device_first) rank.device().fill(there, 1);
            rank.host().fill(here, 1);
            if (!device_first) rank.device().fill(there, 1);
        });
    };
    CHECK(time(true).makespan() == std::max(on_host, on_device));
    CHECK(time(false).makespan() == on_host + on_device);
    CHECK(time(false).ranks[0].time.waiting == on_host);
    CHECK(time(false).ranks[0].host.compute == on_host);
    // The trace shows every wait, for the host and for other ranks.
    const RunReport waiting = run(
        [](Rank& rank) {
            const Tensor there = rank.device().zeros({16}, DType::f32);
            const Tensor here = rank.host().empty({kMiB}, DType::f32);
            Work sum = rank.world().all_reduce(there);
            if (rank.index() == 0) rank.host().fill(here, 1);
            sum.wait();
            rank.world().all_reduce(there).wait();
        },
        2);
    for (int rank = 0; rank < 2; ++rank) {
        Picoseconds waits = 0;
        for (const TraceEvent& event : waiting.trace)
            if (event.rank == rank && event.kind == "wait")
                waits += event.end - event.start;
        CHECK(waits == waiting.ranks[rank].time.waiting);
        CHECK(waits > 0);
    }
}

TEST_CASE("An update of parameters on the host takes the formulas' time", "[sim][host]") {
    // ZeRO-Offload (Ren et al. 2021, 2101.06840) on one device: gradients are copied to
    // the host, AdamW runs there, and the values are copied back.
    constexpr std::int64_t kElements = kMiB;
    constexpr std::int64_t kBytes = 4 * kElements;
    HostTensor offloaded, plain;
    const auto gradient_of = [](Device& device, const Tensor& gradient) {
        device.random_normal(gradient, {1, "gradient"}, 0, 1);
    };
    const RunReport report = run([&](Rank& rank) {
        Device& device = rank.device();
        Device& host = rank.host();
        const Tensor value = device.zeros({kElements}, DType::f32);
        const Tensor gradient = device.empty({kElements}, DType::f32);
        const PinnedMemory scope(host);
        Parameter master("w", host.zeros({kElements}, DType::f32),
                         host.zeros({kElements}, DType::f32));
        AdamW optimizer({&master});
        gradient_of(device, gradient);
        device.start_copy(master.gradient, gradient).wait();
        optimizer.step();
        device.start_copy(value, master.value).wait();
        rank.keep("w", value);
        rank.keep("master", master.value);
    });
    run([&](Rank& rank) {
        Device& device = rank.device();
        Parameter parameter("w", device.zeros({kElements}, DType::f32),
                            device.zeros({kElements}, DType::f32));
        AdamW optimizer({&parameter});
        gradient_of(device, parameter.gradient);
        optimizer.step();
        plain = device.peek(parameter.value);
    });
    const RankReport& rank = report.ranks[0];
    CHECK(rank.kept.at("w") == plain);
    CHECK(rank.kept.at("master") == plain);

    // Value, gradient, two moments: 16 bytes a parameter on the host; 8 on the device.
    using enum MemoryCategory;
    CHECK(rank.host.memory.peak == 4 * kBytes);
    CHECK(rank.host.memory.current[static_cast<std::size_t>(optimizer)] == 0);
    CHECK(rank.host.memory.peak_of(optimizer) == 2 * kBytes);
    CHECK(rank.memory.peak == 2 * kBytes);
    CHECK(rank.host.bytes_to_host == kBytes);
    CHECK(rank.host.bytes_to_device == kBytes);

    // The clock shows one copy, the step, and the other copy, in this order. The step
    // reads value, gradient and moments, and writes all of them except the gradient.
    const auto step = operation_time(spec().host, 0, 7 * kBytes, DType::f32);
    const auto& trace = report.trace;
    const auto adamw = std::find_if(trace.begin(), trace.end(), [](const auto& event) {
        return event.name == "adamw";
    });
    REQUIRE(adamw != trace.end());
    CHECK(adamw->queue == "host");
    CHECK(adamw->end - adamw->start == step);
    const auto copy = [&](const char* queue) {
        const auto found =
            std::find_if(trace.begin(), trace.end(),
                         [&](const TraceEvent& event) { return event.queue == queue; });
        REQUIRE(found != trace.end());
        CHECK(found->end - found->start == copy_time(kBytes));
        return *found;
    };
    CHECK(adamw->start == copy("copy to host").end);
    CHECK(adamw->end == copy("copy to device").start);
    CHECK(report.makespan() == adamw->end + copy_time(kBytes));
    CHECK(rank.time.copy == 2 * copy_time(kBytes));
}

TEST_CASE("An offloaded step overlaps with the copies of other parameters",
          "[sim][host]") {
    constexpr std::int64_t kElements = kMiB;
    constexpr std::int64_t kBytes = 4 * kElements;
    const auto offload = [](Rank& rank) {
        Device& device = rank.device();
        Device& host = rank.host();
        std::vector<Tensor> gradients, values;
        std::vector<std::unique_ptr<Parameter>> there;
        std::vector<std::unique_ptr<AdamW>> optimizers;
        const PinnedMemory scope(host);
        for (int i = 0; i < 2; ++i) {
            values.push_back(device.empty({kElements}, DType::f32));
            gradients.push_back(device.empty({kElements}, DType::f32));
            device.fill(gradients.back(), 1);
        }
        for (const char* name : {"a", "b"}) {
            there.push_back(
                std::make_unique<Parameter>(name, host.zeros({kElements}, DType::f32),
                                            host.empty({kElements}, DType::f32)));
            optimizers.push_back(
                std::make_unique<AdamW>(std::vector{there.back().get()}));
        }
        std::vector<Work> down, up;
        for (int i = 0; i < 2; ++i)
            down.push_back(device.start_copy(there[i]->gradient, gradients[i]));
        for (int i = 0; i < 2; ++i) {
            down[i].wait();
            optimizers[i]->step();
            up.push_back(device.start_copy(values[i], there[i]->value));
        }
        for (Work& work : up)
            work.wait();
        rank.keep("a", values[0]);
        rank.keep("b", values[1]);
    };
    const RunReport report = run(offload);
    // The host fills six tensors with zeros, while the device fills two. Then the first
    // gradient is copied, with nothing else in progress. The second gradient is copied
    // during the first step, and the first parameter during the second step.
    const auto zeros = operation_time(spec().host, 0, kBytes, DType::f32);
    const auto step = operation_time(spec().host, 0, 7 * kBytes, DType::f32);
    const auto copy = copy_time(kBytes);
    REQUIRE(copy < step);
    CHECK(report.makespan() == 6 * zeros + copy + 2 * step + copy);
    CHECK(report.ranks[0].time.copy == 4 * copy);
    CHECK(report.ranks[0].host.compute == 6 * zeros + 2 * step);
    // With a gradient of ones, AdamW first moves values by nearly the learning rate.
    CHECK(report.ranks[0].kept.at("a") == report.ranks[0].kept.at("b"));
    CHECK(std::abs(report.ranks[0].kept.at("a").at(0) + AdamWOptions{}.learning_rate) <
          1e-3 * AdamWOptions{}.learning_rate);
}

TEST_CASE("Weights in bf16 are offloaded with their f32 masters on the host",
          "[sim][host][bf16]") {
    constexpr std::int64_t kElements = kMiB;
    const auto gradient_of = [](Device& device, const Tensor& gradient) {
        device.random_normal(gradient, {1, "gradient"}, 0, 1);
    };
    const RunReport report = run([&](Rank& rank) {
        Device& device = rank.device();
        Device& host = rank.host();
        const Tensor value = device.zeros({kElements}, DType::bf16);
        const Tensor gradient = device.empty({kElements}, DType::bf16);
        const PinnedMemory scope(host);
        Parameter there("w", host.zeros({kElements}, DType::bf16),
                        host.zeros({kElements}, DType::bf16));
        const auto optimizer = make_optimizer<AdamW>({&there}, AdamWOptions{});
        for (int step = 0; step < 2; ++step) {
            gradient_of(device, gradient);
            device.start_copy(there.gradient, gradient).wait();
            optimizer->step();
            device.start_copy(value, there.value).wait();
        }
        rank.keep("w", value);
    });
    HostTensor plain;
    run([&](Rank& rank) {
        Device& device = rank.device();
        Parameter parameter("w", device.zeros({kElements}, DType::bf16),
                            device.zeros({kElements}, DType::bf16));
        const auto optimizer = make_optimizer<AdamW>({&parameter}, AdamWOptions{});
        for (int step = 0; step < 2; ++step) {
            gradient_of(device, parameter.gradient);
            optimizer->step();
        }
        plain = device.peek(parameter.value);
    });
    const RankReport& rank = report.ranks[0];
    CHECK(rank.kept.at("w") == plain);
    // The host holds 16 bytes a parameter (12 of them are the optimizer's), the device 4.
    using enum MemoryCategory;
    CHECK(rank.host.memory.peak == 16 * kElements);
    CHECK(rank.host.memory.peak_of(optimizer) == 12 * kElements);
    CHECK(rank.memory.peak == 4 * kElements);
    CHECK(rank.host.bytes_to_host == 4 * kElements);
    CHECK(rank.host.bytes_to_device == 4 * kElements);
    // First: zeros for value, gradient and moments, and the cast to the master. A step
    // reads master, gradient and moments, writes all but the gradient, and casts.
    const auto takes = [](std::int64_t bytes) {
        return operation_time(spec().host, 0, bytes * kElements, DType::f32);
    };
    CHECK(rank.host.compute ==
          2 * takes(2) + 2 * takes(4) + takes(2 + 4) + 2 * (takes(26) + takes(4 + 2)));
    CHECK(rank.time.copy == 4 * copy_time(2 * kElements));
}

TEST_CASE("Devices of a node share its links to the host if the cluster says so",
          "[sim][host]") {
    ClusterSpec shared = spec();
    const Program program = [](Rank& rank) {
        const Tensor there = rank.device().empty({kMiB}, DType::f32);
        const Tensor here = pinned(rank.host(), {kMiB});
        rank.device().start_copy(here, there).wait();
    };
    for (const int links : {0, 1, 2, 4}) {
        shared.host_links = links;
        const int in_turn = links == 0 ? 1 : 4 / links;
        CHECK(run(program, 4, shared).makespan() ==
              in_turn * copy_time(4 * kMiB, shared));
    }
}

TEST_CASE("A shared link serves in the order of virtual time, not of the host",
          "[sim][host]") {
    sim::ClusterOptions options;
    options.ranks = 4;
    options.spec = spec();
    options.spec.host_links = 1;
    options.trace = true;
    const auto copies = [&] {
        const RunReport report = sim::make_cluster(options)->run([](Rank& rank) {
            // Rank 3 copies first, rank 0 last. Each rank copies twice per direction.
            const Tensor down = rank.device().empty({kMiB}, DType::f32);
            const Tensor up = rank.device().empty({kMiB}, DType::f32);
            const Tensor here = pinned(rank.host(), {kMiB});
            const Tensor from = pinned(rank.host(), {kMiB});
            for (int i = 0; i < 2; ++i) {
                rank.host().fill(here.slice(0, std::int64_t{256} * (4 - rank.index())),
                                 i);
                Work to_device = rank.device().start_copy(up, from);
                rank.device().start_copy(here, down).wait();
                to_device.wait();
            }
        });
        std::vector<CopySpan> spans;
        for (const TraceEvent& event : report.trace)
            if (event.kind == "copy")
                spans.push_back({event.rank, event.queue, event.start, event.end});
        return spans;
    };
    const auto first = copies();
    const auto copy = copy_time(4 * kMiB);
    // The two directions do not disturb each other, so both take the same time.
    REQUIRE(first.size() == std::size_t{4} * 2 * 2);
    for (const char* queue : {"copy to host", "copy to device"}) {
        const Picoseconds begin = ends_of(first, 3, queue).at(0);
        CHECK(ends_of(first, 2, queue).at(0) == begin + copy);
        CHECK(ends_of(first, 0, queue).at(1) == begin + 7 * copy);
    }
    for (const auto executor : {sim::ExecutorKind::fibers, sim::ExecutorKind::threads})
        for (std::uint64_t seed = 0; seed < 10; ++seed) {
            CAPTURE(seed);
            options.executor = executor;
            options.schedule_seed = seed;
            CHECK((copies() == first));
        }
}

TEST_CASE("Copies that ask for a shared link at one time are served by rank and order",
          "[sim][host]") {
    sim::ClusterOptions options;
    options.ranks = 8;
    options.spec = spec();
    options.trace = true;
    const auto trace = [&] {
        const RunReport report = sim::make_cluster(options)->run([](Rank& rank) {
            const Tensor down = rank.device().empty({kMiB}, DType::f32);
            const Tensor up = rank.device().empty({kMiB}, DType::f32);
            const Tensor here = pinned(rank.host(), {2 * kMiB});
            Work first = rank.device().start_copy(here.slice(0, kMiB), down);
            Work second = rank.device().start_copy(up, here.slice(kMiB, kMiB));
            first.wait();
            second.wait();
            rank.world().barrier().wait();
        });
        std::vector<CopySpan> spans;
        for (const TraceEvent& event : report.trace)
            spans.push_back({event.rank, event.queue, event.start, event.end});
        return spans;
    };
    for (const int links : {0, 2}) {
        options.spec.host_links = links;
        options.executor = sim::ExecutorKind::fibers;
        options.schedule_seed.reset();
        const auto first = trace();
        for (const auto executor :
             {sim::ExecutorKind::fibers, sim::ExecutorKind::threads})
            for (std::uint64_t seed = 0; seed < 10; ++seed) {
                CAPTURE(links, seed);
                options.executor = executor;
                options.schedule_seed = seed;
                CHECK((trace() == first));
            }
    }
}

TEST_CASE("Uploads and downloads take as long as if the device had its own link",
          "[sim][host]") {
    // See ClusterSpec::host_links and Device::upload.
    ClusterSpec shared = spec();
    shared.host_links = 1;
    const Program program = [](Rank& rank) {
        const Tensor there = rank.device().empty({kMiB}, DType::f32);
        const Tensor here = pinned(rank.host(), {kMiB});
        Work copy = rank.device().start_copy(here, there);
        (void)rank.device().download(there);
        rank.keep_value("time", static_cast<double>(rank.host().monitor().moment().time));
        copy.wait();
    };
    const RunReport report = run(program, 4, shared);
    for (const RankReport& rank : report.ranks)
        CHECK(rank.series.at("time").at(0) ==
              static_cast<double>(copy_time(4 * kMiB, shared)));
    CHECK(report.makespan() == 4 * copy_time(4 * kMiB, shared));
}

TEST_CASE("wait_any accepts both copies and messages, and the host waits with it",
          "[sim][host]") {
    for (const bool copy_first : {false, true}) {
        const RunReport report = run(
            [&](Rank& rank) {
                Device& device = rank.device();
                const Tensor there = device.empty({2 * kMiB}, DType::f32);
                const Tensor here = pinned(rank.host(), {kMiB});
                const std::int64_t sent = copy_first ? kMiB : 1024;
                const std::int64_t copied = copy_first ? 1024 : kMiB;
                std::vector<Work> works;
                works.push_back(rank.world().all_reduce(there.slice(0, sent)));
                works.push_back(
                    device.start_copy(here.slice(0, copied), there.slice(kMiB, copied)));
                const std::size_t first = wait_any(works);
                rank.keep_value("first", static_cast<double>(first));
                works[1 - first].wait();
            },
            2);
        CHECK(report.ranks[1].series.at("first")[0] == (copy_first ? 1 : 0));
    }
}

TEST_CASE("The message of a full host names its device", "[sim][host]") {
    const std::string what = message_of<FaultError>([] {
        run([](Rank& rank) {
            const Tensor all = rank.host().empty({64 * kMiB / 4}, DType::f32);
            const Tensor more = rank.host().empty({1}, DType::f32);
        });
    });
    CHECK(what.find("the host of rank 0 is out of memory: 4 B more") !=
          std::string::npos);
}

TEST_CASE("Impossible copies are refused", "[sim][host]") {
    run(
        [](Rank& rank) {
            Device& device = rank.device();
            Device& host = rank.host();
            CHECK(&host.host() == &host);
            const Tensor there = device.empty({4}, DType::f32);
            const Tensor here = host.empty({4}, DType::f32);
            const auto refused = [&](Device& copier, const Tensor& to,
                                     const Tensor& from) {
                return message_of<UsageError>(
                    [&] { copier.start_copy(to, from).wait(); });
            };
            CHECK(refused(host, here, there)
                      .find("a host was asked to start a copy; ask its device") !=
                  std::string::npos);
            CHECK(refused(device, there, there).find("source") != std::string::npos);
            CHECK(refused(device, here, host.empty({3}, DType::f32)).find("source") !=
                  std::string::npos);
            CHECK(refused(device, there, host.empty({3}, DType::f32))
                      .find("source has 3 elements, but destination has 4") !=
                  std::string::npos);
            CHECK(refused(device, there, host.empty({4}, DType::i32))
                      .find("source is i32, but destination is f32") !=
                  std::string::npos);
            // Neither device can compute with a tensor of the other device.
            CHECK(message_of<UsageError>([&] {
                      device.add(there, here);
                  }).find("source") != std::string::npos);
        },
        2);
}

TEST_CASE("The host's use of a buffer in flight is a race", "[sim][host]") {
    sim::ClusterOptions options;
    options.spec = spec();
    options.check = sim::CheckLevel::full;
    const auto fault = [&](const Program& program) {
        return message_of<FaultError>([&] { sim::make_cluster(options)->run(program); });
    };
    CHECK(fault([](Rank& rank) {
              const Tensor there = rank.device().zeros({8}, DType::f32);
              const Tensor here = pinned(rank.host(), {8});
              Work copy = rank.device().start_copy(here, there);
              rank.host().scale(here, 2);
              copy.wait();
          }).find("copy") != std::string::npos);
    CHECK(fault([](Rank& rank) {
              const Tensor there = rank.device().zeros({8}, DType::f32);
              const Tensor here = pinned(rank.host(), {8});
              Work copy = rank.device().start_copy(here, there);
              rank.device().fill(there, 2);
              copy.wait();
          }).find("copy") != std::string::npos);
    CHECK(fault([](Rank& rank) {
              const Tensor there = rank.device().zeros({8}, DType::f32);
              const Tensor here = pinned(rank.host(), {8});
              const Work copy = rank.device().start_copy(here, there);
          }).find("copy") != std::string::npos);
}

}  // namespace lockstep::test
