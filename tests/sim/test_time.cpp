#include <functional>

#include "src/core/require.hpp"
#include "src/parallel/ring_collectives.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"
#include "tests/sim/worlds.hpp"

// Compares virtual time with arithmetic. In the classroom a launch takes 1 us; devices
// have 10^12 flop/s and memory 100 GB/s. A message takes 1 us + b / (10 GB/s) inside a
// node of 8, and 10 us + b / (1 GB/s) between nodes.

namespace lockstep::test {

namespace {

constexpr Picoseconds kMicrosecond = 1'000'000;

Tensor floats(Rank& rank, std::int64_t count) {
    return rank.device().empty({count}, DType::f32);
}

RunReport run(int ranks, const Program& program, const std::string& spec = "classroom") {
    return sim::make_cluster(ranks, spec)->run(program);
}

}  // namespace

TEST_CASE("a product's time is its launch, then the longer of arithmetic and memory",
          "[sim][time]") {
    const RunReport report = run(1, [](Rank& rank) {
        const Tensor a = rank.device().empty({1000, 1000}, DType::f32);
        const Tensor b = rank.device().empty({1000, 1000}, DType::f32);
        rank.device().fill(a, 0);
        rank.device().fill(b, 0);
        (void)rank.device().matmul(a, b);
    });
    // Fills: 1 us + 4 MB / (100 GB/s). Product: 1 us + 2e9 flop / (1e12 flop/s).
    CHECK(report.makespan() == (2 * std::int64_t{41} + 2001) * kMicrosecond);
    CHECK(report.ranks[0].time.compute == report.makespan());
}

TEST_CASE("an all-reduce takes 2(n-1)(alpha + S/n/beta), by hand too", "[sim][time]") {
    for (const int n : {2, 4, 8}) {
        const std::int64_t count = std::int64_t{10'000} * n;
        const RunReport built_in = run(
            n, [&](Rank& rank) { rank.world().all_reduce(floats(rank, count)).wait(); });
        const Picoseconds step = kMicrosecond + 4 * kMicrosecond;
        CHECK(built_in.makespan() == std::int64_t{2} * (n - 1) * step);
        const RunReport by_hand = run(
            n, [&](Rank& rank) { ring_all_gather(rank.world(), floats(rank, count)); });
        CHECK(by_hand.makespan() == (n - 1) * step);
    }
}

TEST_CASE("a group of collectives takes the longest latency and the time of all bytes",
          "[sim][time][group]") {
    constexpr int kRanks = 8;
    constexpr std::int64_t kCount = 16'384;  // 64 kB
    constexpr std::int64_t kOperations = 100;
    const auto gather_all = [&](bool in_group) {
        return run(kRanks, [&](Rank& rank) {
            Communicator& world = rank.world();
            const Tensor own = floats(rank, kCount), all = floats(rank, kRanks * kCount);
            if (!in_group) {
                for (int i = 0; i < kOperations; ++i)
                    world.all_gather(all, own).wait();
                return;
            }
            std::vector<Tensor> outputs;
            Group group = world.group();
            for (int i = 0; i < kOperations; ++i) {
                outputs.push_back(floats(rank, kRanks * kCount));
                group.all_gather(outputs.back(), own);
            }
            group.start().wait();
        });
    };
    const RunReport flat = run(kRanks, [&](Rank& rank) {
        rank.world()
            .all_gather(floats(rank, kOperations * kRanks * kCount),
                        floats(rank, kOperations * kCount))
            .wait();
    });
    // 7 steps of 1 us + 64 kiB / (10 GB/s) = 6.5536 us.
    const Picoseconds latency = 7 * kMicrosecond, bytes = Picoseconds{7} * 6'553'600;
    CHECK(gather_all(false).makespan() == kOperations * (latency + bytes));
    CHECK(gather_all(true).makespan() == latency + kOperations * bytes);
    CHECK(flat.makespan() == latency + kOperations * bytes);
}

TEST_CASE("a group pays the latency of its longest collective, at any place in it",
          "[sim][time][group]") {
    // On 8 ranks a broadcast has 7 latencies (7 hops), an all-reduce has 14.
    const Picoseconds longest = 14 * kMicrosecond;
    const Picoseconds bytes = Picoseconds{4 * 8'000 / 10} * 1'000 +      // broadcast
                              Picoseconds{14} * 4 * 1'000 / 10 * 1'000;  // all-reduce
    for (const bool reduces_first : {false, true}) {
        const RunReport report = run(8, [&](Rank& rank) {
            const Tensor a = floats(rank, 8'000), b = floats(rank, 8'000);
            Group group = rank.world().group();
            if (reduces_first) group.all_reduce(a);
            group.broadcast(b, 0);
            if (!reduces_first) group.all_reduce(a);
            group.start().wait();
        });
        CHECK(report.makespan() == longest + bytes);
    }
    // If one rank launches the operations one by one, they share no latency.
    const RunReport mixed = run(8, [&](Rank& rank) {
        const Tensor a = floats(rank, 8'000), b = floats(rank, 8'000);
        if (rank.index() == 0) {
            Work first = rank.world().broadcast(b, 0);
            rank.world().all_reduce(a).wait();
            first.wait();
        } else {
            rank.world().group().broadcast(b, 0).all_reduce(a).start().wait();
        }
    });
    CHECK(mixed.makespan() == longest + bytes + 7 * kMicrosecond);
}

TEST_CASE("a collective starts when its last member is ready", "[sim][time]") {
    const RunReport report = run(4, [](Rank& rank) {
        const Tensor x = floats(rank, 1);
        for (int i = 0; i < rank.index(); ++i)
            rank.device().fill(x.slice(0, 0), 0);
        rank.world().barrier().wait();
    });
    // Rank 3 arrives after three launches. A barrier of four needs two messages.
    for (const RankReport& rank : report.ranks)
        CHECK(rank.time.end == 5 * kMicrosecond);
    CHECK(report.ranks[0].time.waiting == 5 * kMicrosecond);
    CHECK(report.ranks[3].time.waiting == 2 * kMicrosecond);
}

TEST_CASE("communication runs beside compute until it is waited for", "[sim][time]") {
    const auto program = [](bool overlap) {
        return [overlap](Rank& rank) {
            const Tensor x = floats(rank, 20'000);
            const Tensor y = floats(rank, 1);
            Work work = rank.world().all_reduce(x);  // 2 (1 us + 4 us)
            if (!overlap) work.wait();
            for (int i = 0; i < 6; ++i)
                rank.device().fill(y.slice(0, 0), 0);
            if (overlap) work.wait();
        };
    };
    CHECK(run(2, program(false)).makespan() == 16 * kMicrosecond);
    CHECK(run(2, program(true)).makespan() == 10 * kMicrosecond);
}

TEST_CASE("the trace shows each wait; the waits add up to all waiting", "[sim][time]") {
    const SourceLine first{"train.cpp", 1}, second{"train.cpp", 2}, late{"train.cpp", 3};
    const auto program = [&](Rank& rank) {
        const Tensor a = floats(rank, 100'000), b = floats(rank, 300'000);
        const auto pair = rank.world().split(rank.index() / 2, rank.index(), "pair");
        Work small = rank.world().all_reduce(a);
        Work large = pair->all_reduce(b);
        {
            const PhaseScope phase(rank.device(), Phase::backward, 3);
            small.wait(first);
            large.wait(second);
        }
        Work again = pair->all_reduce(b);
        rank.device().fill(floats(rank, 100'000'000), 0);  // longer than the sum
        again.wait(late);
        const Tensor arriving = floats(rank, 100'000);
        rank.world()
            .group()
            .send(a, (rank.index() + 1) % 4)
            .recv(arriving, (rank.index() + 3) % 4)
            .start()
            .wait();
    };
    const RunReport report = make_cluster_in({}, 4, "classroom", true)->run(program);
    for (int rank = 0; rank < 4; ++rank) {
        Picoseconds sum = 0;
        std::vector<TraceEvent> waits;
        for (const TraceEvent& event : report.trace) {
            if (event.rank != rank || event.kind != "wait") continue;
            CHECK(event.end > event.start);
            CHECK(event.queue == "compute");
            sum += event.end - event.start;
            waits.push_back(event);
            // A wait ends at the same time as the operation that it waits for.
            CHECK(std::count_if(report.trace.begin(), report.trace.end(),
                                [&](const TraceEvent& other) {
                                    return other.rank == rank &&
                                           other.queue == event.communicator &&
                                           other.bytes == event.bytes &&
                                           "wait for " + other.name == event.name &&
                                           other.end == event.end;
                                }) == 1);
        }
        CHECK(sum == report.ranks[static_cast<std::size_t>(rank)].time.waiting);
        const auto wait_at = [&](SourceLine at) {
            return std::find_if(waits.begin(), waits.end(),
                                [&](const TraceEvent& wait) { return wait.at == at; });
        };
        REQUIRE(wait_at(first) != waits.end());
        CHECK(wait_at(first)->name == "wait for all_reduce");
        CHECK(wait_at(first)->communicator == "world");
        CHECK(wait_at(first)->micro_batch == 3);
        REQUIRE(wait_at(second) != waits.end());
        CHECK(wait_at(second)->communicator == "pair");
        CHECK(wait_at(second)->bytes == 1'200'000);
        CHECK(wait_at(second)->start >= wait_at(first)->end);
        CHECK(wait_at(late) == waits.end());
        CHECK(waits.back().name == "wait for send + recv");
    }
    CHECK(make_cluster_in({}, 4)->run(program).trace.empty());
}

TEST_CASE("the trace shows a wait for an empty group behind other work", "[sim][time]") {
    const auto program = [](Rank& rank) {
        const Tensor values = floats(rank, 1000);
        Work before = rank.world().all_reduce(values);
        rank.world().group().start().wait();
        before.wait();
    };
    const RunReport report = make_cluster_in({}, 2, "classroom", true)->run(program);
    std::vector<TraceEvent> waits;
    for (const TraceEvent& event : report.trace)
        if (event.rank == 1 && event.kind == "wait") waits.push_back(event);
    REQUIRE(waits.size() == 1);
    CHECK(waits[0].name == "wait for an empty group");
    CHECK(waits[0].communicator == "world");
    CHECK(waits[0].end - waits[0].start == report.ranks[1].time.waiting);
}

TEST_CASE("operations run one by one on one communicator, at the same time on two",
          "[sim][time]") {
    const auto program = [](bool two) {
        return [two](Rank& rank) {
            const auto other = rank.world().split(0, rank.index(), "other");
            const Tensor x = floats(rank, 20'000);
            const Tensor y = floats(rank, 20'000);
            Work first = rank.world().all_reduce(x);
            Work second = (two ? *other : rank.world()).all_reduce(y);
            first.wait();
            second.wait();
        };
    };
    CHECK(run(2, program(false)).makespan() == 20 * kMicrosecond);
    CHECK(run(2, program(true)).makespan() == 10 * kMicrosecond);
}

TEST_CASE("a port carries one message at a time, both directions at once",
          "[sim][time]") {
    const std::int64_t count = 10'000;  // a message takes 1 us + 4 us
    const RunReport fan_in = run(4, [&](Rank& rank) {
        if (rank.index() > 0) {
            rank.world().send(floats(rank, count), 0).wait();
            return;
        }
        std::vector<Tensor> arriving;
        Group group = rank.world().group();
        for (int from = 1; from < 4; ++from)
            group.recv(arriving.emplace_back(floats(rank, count)), from);
        group.start().wait();
    });
    CHECK(fan_in.makespan() == 15 * kMicrosecond);
    const RunReport exchange = run(2, [&](Rank& rank) {
        const int other = 1 - rank.index();
        rank.world()
            .group()
            .send(floats(rank, count), other)
            .recv(floats(rank, count), other)
            .start()
            .wait();
    });
    CHECK(exchange.makespan() == 5 * kMicrosecond);
}

TEST_CASE("an all-to-all by hand takes n-1 messages' time", "[sim][time]") {
    for (const int n : {2, 3, 5, 8}) {
        const RunReport report = run(n, [](Rank& rank) {
            const Tensor going = floats(rank, 10'000);
            std::vector<Tensor> arriving;
            Group group = rank.world().group();
            for (int step = 1; step < rank.size(); ++step) {
                group.send(going, (rank.index() + step) % rank.size());
                group.recv(arriving.emplace_back(floats(rank, 10'000)),
                           (rank.index() + rank.size() - step) % rank.size());
            }
            group.start().wait();
        });
        CHECK(report.makespan() == std::int64_t{5} * (n - 1) * kMicrosecond);
    }
}

TEST_CASE("devices of a node share its network ports", "[sim][time]") {
    ClusterSpec spec = load_cluster("classroom");
    const auto four_pairs = [&](int ports) {
        spec.network_ports = ports;
        sim::ClusterOptions options;
        options.ranks = 16;
        options.spec = spec;
        return sim::make_cluster(options)
            ->run([](Rank& rank) {
                const Tensor x = floats(rank, 1000);  // 10 us + 4 us
                if (rank.index() < 4) rank.world().send(x, rank.index() + 8).wait();
                if (rank.index() >= 8 && rank.index() < 12)
                    rank.world().recv(x, rank.index() - 8).wait();
            })
            .makespan();
    };
    CHECK(four_pairs(0) == 14 * kMicrosecond);
    CHECK(four_pairs(4) == 14 * kMicrosecond);
    CHECK(four_pairs(2) == 28 * kMicrosecond);
    CHECK(four_pairs(1) == 56 * kMicrosecond);
}

TEST_CASE("groups of one split share their nodes' ports", "[sim][time]") {
    const auto seconds_with = [&](int ports, bool split) {
        sim::ClusterOptions options;
        options.ranks = 16;
        options.spec = load_cluster("classroom");
        options.spec.network_ports = ports;
        return sim::make_cluster(options)
            ->run([&](Rank& rank) {
                const int local = rank.index() % 8;
                const auto line = rank.world().split(
                    split || local == 0 ? local : Communicator::kNoColor, rank.index(),
                    "line");
                if (split || local == 0) line->all_reduce(floats(rank, 10'000)).wait();
            })
            .makespan();
    };
    CHECK(seconds_with(0, true) == seconds_with(8, true));
    CHECK(seconds_with(1, false) == seconds_with(8, true));
    // Two steps of 10 us, and 20 us for bytes, which eight groups share.
    CHECK(seconds_with(8, true) == 60 * kMicrosecond);
    CHECK(seconds_with(1, true) == 340 * kMicrosecond);
}

TEST_CASE("a run's roof is the longest of its products, memory and links",
          "[sim][time]") {
    sim::ClusterOptions options;
    options.ranks = 2;
    options.spec = load_cluster("classroom");
    options.spec.algorithms = {};
    const ClusterSpec& spec = options.spec;
    const RunReport report = sim::make_cluster(options)->run([](Rank& rank) {
        const Tensor x = floats(rank, 1000);
        const PhaseScope forward(rank.device(), Phase::forward);
        const Tensor y =
            rank.device().matmul(x.reshaped({100, 10}), x.reshaped({10, 100}));
        if (rank.index() == 0) rank.world().send(y, 1).wait();
        if (rank.index() == 1) rank.world().recv(y, 0).wait();
    });
    CHECK(report.roof.products == time_at_rate(200'000, spec.flops_f32));
    CHECK(report.roof.links == time_at_rate(40'000, spec.inside.bytes_per_second));
    CHECK(report.roof.memory >= time_at_rate(48'000, spec.memory_bytes_per_second));
    CHECK(report.roof.highest() <= report.makespan());
    CHECK(report.time_in_phases() == report.makespan() - report.ranks[0].time.begin);
}

namespace {

/// Returns the time on the classroom's devices if one device is slow.
Picoseconds with_straggler(int ranks, const ClusterSpec::Straggler& straggler,
                           const Program& program) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster("classroom");
    options.spec.stragglers = {straggler};
    return sim::make_cluster(options)->run(program).makespan();
}

}  // namespace

TEST_CASE("a slow link sets the pace of collectives that go in step",
          "[sim][time][straggler]") {
    constexpr int kRanks = 4;
    constexpr std::int64_t kCount = 10'000;
    using Call = std::function<void(Rank&)>;
    const Call calls[] = {
        [](Rank& rank) { rank.world().all_reduce(floats(rank, kCount)).wait(); },
        [](Rank& rank) {
            rank.world()
                .all_gather(floats(rank, kRanks * kCount), floats(rank, kCount))
                .wait();
        },
        [](Rank& rank) {
            rank.world()
                .reduce_scatter(floats(rank, kCount), floats(rank, kRanks * kCount))
                .wait();
        },
        [](Rank& rank) {
            rank.world()
                .all_to_all(floats(rank, kRanks * kCount), floats(rank, kRanks * kCount))
                .wait();
        },
        [](Rank& rank) { rank.world().barrier().wait(); },
        // Written by hand: each step of a ring waits for the slow message.
        [](Rank& rank) { ring_all_gather(rank.world(), floats(rank, kRanks * kCount)); },
        [](Rank& rank) {
            const Tensor x = floats(rank, kCount);
            if (rank.index() == 1) rank.world().send(x, 2).wait();
            if (rank.index() == 2) rank.world().recv(x, 1).wait();
        },
    };
    for (const Call& call : calls) {
        const Picoseconds even = run(kRanks, call).makespan();
        CHECK(even > 0);
        CHECK(with_straggler(kRanks, {2, 1, 4}, call) == 4 * even);
        CHECK(with_straggler(kRanks, {2, 4, 1}, call) == even);
        CHECK(with_straggler(kRanks, {kRanks, 4, 4}, call) == even);
    }
}

namespace {

/// A gather or scatter, by sends and recvs in a group. A rank has `count` numbers.
void rooted_by_hand(Rank& rank, bool gathers, int root, std::int64_t count) {
    const Tensor all = floats(rank, rank.size() * count);
    const Tensor own = floats(rank, count);
    Group group = rank.world().group();
    for (int peer = 0; peer < rank.size(); ++peer) {
        if (rank.index() != root || peer == root) continue;
        const Tensor part = all.slice(peer * count, count);
        gathers ? group.recv(part, peer) : group.send(part, peer);
    }
    if (rank.index() != root) gathers ? group.send(own, root) : group.recv(own, root);
    group.start().wait();
}

}  // namespace

TEST_CASE("gather and scatter have one slow message, unless their root is slow",
          "[sim][time][straggler]") {
    constexpr int kRanks = 4;
    constexpr int kRoot = 1;
    constexpr std::int64_t kCount = 10'000;
    const Picoseconds message = 5 * kMicrosecond;  // 1 us + 4 us
    for (const bool gathers : {true, false}) {
        const auto verb = [&](Rank& rank) {
            const Tensor all =
                rank.index() == kRoot ? floats(rank, kRanks * kCount) : Tensor();
            if (gathers)
                rank.world().gather(all, floats(rank, kCount), kRoot).wait();
            else
                rank.world().scatter(floats(rank, kCount), all, kRoot).wait();
        };
        const auto by_hand = [&](Rank& rank) {
            rooted_by_hand(rank, gathers, kRoot, kCount);
        };
        for (const Program& program : {Program(verb), Program(by_hand)}) {
            CAPTURE(gathers);
            CHECK(run(kRanks, program).makespan() == 3 * message);
            for (const int straggler : {0, 2, 3})
                CHECK(with_straggler(kRanks, {straggler, 1, 4}, program) ==
                      (2 + 4) * message);
            CHECK(with_straggler(kRanks, {kRoot, 1, 4}, program) == 12 * message);
            CHECK(with_straggler(kRanks, {kRoot, 4, 1}, program) == 3 * message);
        }
    }
}

TEST_CASE("a chain adds up its hops' latency, and sends bytes at the slowest hop's pace",
          "[sim][time][straggler]") {
    // The broadcast hops from 1 over 2 and 3 to 0, the reduce from 2 over 3 and 0 to 1.
    const auto broadcast = [](Rank& rank) {
        rank.world().broadcast(floats(rank, 10'000), 1).wait();
    };
    const auto reduce = [](Rank& rank) {
        rank.world().reduce(floats(rank, 10'000), 1).wait();
    };
    const auto time = [](std::int64_t hops, std::int64_t slow_hops) {
        return (hops - slow_hops + 4 * slow_hops) * kMicrosecond +  // 1 us for each
               (slow_hops > 0 ? 16 : 4) * kMicrosecond;             // 40 kB / (10 GB/s)
    };
    CHECK(run(4, broadcast).makespan() == time(3, 0));
    CHECK(run(4, reduce).makespan() == time(3, 0));
    for (int straggler = 0; straggler < 4; ++straggler) {
        CAPTURE(straggler);
        const ClusterSpec::Straggler slow{straggler, 1, 4};
        const bool ends_broadcast = straggler == 1 || straggler == 0;
        const bool ends_reduce = straggler == 2 || straggler == 1;
        CHECK(with_straggler(4, slow, broadcast) == time(3, ends_broadcast ? 1 : 2));
        CHECK(with_straggler(4, slow, reduce) == time(3, ends_reduce ? 1 : 2));
    }
}

TEST_CASE("a slow device makes all wait at the next collective",
          "[sim][time][straggler]") {
    const auto step = [](Rank& rank) {
        const Tensor x = floats(rank, 1'000'000);
        rank.device().fill(x, 1);
        rank.world().all_reduce(x).wait();
    };
    // A fill: 1 us + 4 MB / (100 GB/s) = 41 us.
    const Picoseconds even = run(4, step).makespan();
    CHECK(with_straggler(4, {1, 4, 1}, step) == even + 3 * (41 * kMicrosecond));
    // The unit cluster's phases are also slowed.
    sim::ClusterOptions options;
    options.spec = load_cluster("unit");
    options.spec.stragglers = {{0, 4, 1}};
    const RunReport report = sim::make_cluster(options)->run(
        [](Rank& rank) { const PhaseScope phase(rank.device(), Phase::forward, 0); });
    CHECK(report.makespan() == 4 * kSecond);
}

TEST_CASE("in the unit cluster only phases cost time, in units", "[sim][time]") {
    const RunReport report = run(
        2,
        [](Rank& rank) {
            Device& device = rank.device();
            const Tensor x = rank.device().zeros({1000}, DType::f32);
            if (rank.index() == 1) rank.world().recv(x, 0).wait();
            {
                const PhaseScope phase(device, Phase::forward, 0);
                device.scale(x, 2);
            }
            if (rank.index() == 0) rank.world().send(x, 1).wait();
            const PhaseScope phase(device, Phase::backward, 0);
        },
        "unit");
    CHECK(report.ranks[0].time.end == 3 * kSecond);
    CHECK(report.ranks[1].time.end == 4 * kSecond);
}

namespace {

/// A cluster in which each message and each launch takes this many seconds.
ClusterSpec slow(double seconds) {
    ClusterSpec spec;
    spec.launch_seconds = seconds;
    for (LinkSpec* link : {&spec.inside, &spec.between, &spec.host_copy})
        *link = {seconds, 1000};
    spec.memory_bytes_per_second = 1000;
    return spec;
}

std::string refusal(const ClusterSpec& spec, int ranks, const Program& program) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = spec;
    options.numbers = false;
    options.trace = true;
    return message_of<UsageError>([&] { sim::make_cluster(options)->run(program); });
}

constexpr const char* kBeyond =
    "would exceed 2^63 picoseconds (106 days) of virtual time";

}  // namespace

TEST_CASE("times up to 2^63 picoseconds are allowed, and larger ones refused",
          "[sim][time][errors]") {
    constexpr double kLaunch = 10'000;
    const auto fills = [&](int count) {
        return [count](Rank& rank) {
            const Tensor x = rank.device().empty({1}, DType::f32);
            for (int i = 0; i < count; ++i)
                rank.device().fill(x, 0);
        };
    };
    sim::ClusterOptions options;
    options.spec.launch_seconds = kLaunch;
    const RunReport report = sim::make_cluster(options)->run(fills(922));
    CHECK(report.makespan() == Picoseconds{9'220'000} * kSecond);
    CHECK(report.ranks[0].time.compute == report.makespan());
    const std::string sentence = refusal(options.spec, 2, fills(923));
    CHECK(sentence.find(kBeyond) != std::string::npos);
    CHECK(sentence.find("test_time.cpp:") != std::string::npos);
}

TEST_CASE("anything that makes a clock overflow is refused", "[sim][time][errors]") {
    constexpr std::int64_t kMany = std::int64_t{1} << 40;
    const auto tensor_of = [](Rank& rank, std::int64_t count) {
        return rank.device().empty({count}, DType::f32);
    };
    const std::vector<std::pair<std::string, Program>> programs{
        {"operation",
         [&](Rank& rank) { rank.device().fill(tensor_of(rank, kMany * 4096), 0); }},
        {"operations",
         [&](Rank& rank) {
             for (int i = 0; i < 10'000; ++i)
                 rank.device().fill(tensor_of(rank, kMany / 1024), 0);
         }},
        {"collective",
         [&](Rank& rank) {
             rank.world().all_reduce(tensor_of(rank, kMany * 4096)).wait();
         }},
        {"chain",
         [&](Rank& rank) {
             rank.world().broadcast(tensor_of(rank, kMany * 4096), 0).wait();
         }},
        {"collectives",
         [&](Rank& rank) {
             for (int i = 0; i < 10'000; ++i)
                 rank.world().all_reduce(tensor_of(rank, kMany / 4096)).wait();
         }},
        {"group",
         [&](Rank& rank) {
             Group group = rank.world().group();
             for (int i = 0; i < 4; ++i)
                 group.all_reduce(tensor_of(rank, kMany * 4096));
             group.start().wait();
         }},
        {"messages",
         [&](Rank& rank) {
             const Tensor x = tensor_of(rank, kMany);
             for (int i = 0; i < 10'000; ++i)
                 if (rank.index() == 0)
                     rank.world().send(x, 1).wait();
                 else
                     rank.world().recv(x, 0).wait();
         }},
        {"barriers",
         [&](Rank& rank) {
             for (int i = 0; i < 10'000; ++i)
                 rank.world().barrier().wait();
         }},
        {"communicators side by side",
         [&](Rank& rank) {
             std::vector<std::unique_ptr<Communicator>> worlds;
             std::vector<Work> works;
             for (int i = 0; i < 8; ++i) {
                 worlds.push_back(rank.world().split(0, rank.index()));
                 works.push_back(
                     worlds.back()->all_reduce(tensor_of(rank, kMany / 1024)));
             }
             for (Work& work : works)
                 work.wait();
         }},
    };
    for (const auto& [name, program] : programs) {
        INFO(name);
        CHECK(refusal(slow(10'000), 2, program).find(kBeyond) != std::string::npos);
    }
}

TEST_CASE("phases and stragglers can also make a clock overflow", "[sim][time][errors]") {
    const Program phases = [](Rank& rank) {
        for (int i = 0; i < 1'000; ++i)
            const PhaseScope scope(rank.device(), Phase::backward, i);
    };
    ClusterSpec spec;
    spec.phases = ClusterSpec::PhaseTimes{0, 9'000, 9'000};
    CHECK(refusal(spec, 1, phases).find(kBeyond) != std::string::npos);
    spec = slow(10'000);
    spec.stragglers.push_back({0, 100, 100});
    const Program few = [](Rank& rank) {
        const Tensor x = rank.device().empty({1}, DType::f32);
        for (int i = 0; i < 10; ++i)
            rank.device().fill(x, 0);
    };
    CHECK(refusal(spec, 1, few).find(kBeyond) != std::string::npos);
}

}  // namespace lockstep::test
