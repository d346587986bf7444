// Measures how fast the simulator runs: rendezvous, hand-written collectives, and memory
// per device.

#include <benchmark/benchmark.h>
#include <fstream>
#include <malloc.h>
#include <unistd.h>

#include "sim/cluster.hpp"
#include "src/parallel/ring_collectives.hpp"

namespace {

using namespace lockstep;

sim::ClusterOptions shapes_only(int ranks) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster("classroom");
    options.numbers = false;
    options.workers = 1;
    return options;
}

/// Barriers. Each barrier is one rendezvous of all ranks.
void rendezvous(benchmark::State& state) {
    const auto ranks = static_cast<int>(state.range(0));
    const int barriers = 2'000'000 / ranks;
    for ([[maybe_unused]] const auto _ : state)
        sim::make_cluster(shapes_only(ranks))->run([&](Rank& rank) {
            for (int i = 0; i < barriers; ++i)
                rank.world().barrier().wait();
        });
    state.counters["rank_rendezvous"] =
        benchmark::Counter(static_cast<double>(state.iterations()) * barriers * ranks,
                           benchmark::Counter::kIsRate);
}
BENCHMARK(rendezvous)->Arg(8)->Arg(1024)->Arg(16384)->Unit(benchmark::kMillisecond);

/// 1 MiB over 1,024 devices: 2,046 steps of 1,024 messages.
void ring_all_reduce_by_hand(benchmark::State& state) {
    for ([[maybe_unused]] const auto _ : state)
        sim::make_cluster(shapes_only(1024))->run([](Rank& rank) {
            const Tensor buffer = rank.device().empty({1 << 18}, DType::f32);
            ring_all_reduce(rank.device(), rank.world(), buffer);
        });
}
BENCHMARK(ring_all_reduce_by_hand)->Unit(benchmark::kMillisecond);

/// Every rank sends a block to every other rank, all in one group.
void all_to_all_by_hand(benchmark::State& state) {
    for ([[maybe_unused]] const auto _ : state)
        sim::make_cluster(shapes_only(512))->run([](Rank& rank) {
            const int n = rank.size();
            const Tensor sent = rank.device().empty({n, 256}, DType::f32);
            const Tensor received = rank.device().empty({n, 256}, DType::f32);
            Group group = rank.world().group();
            for (int step = 1; step < n; ++step) {
                const int to = (rank.index() + step) % n;
                const int from = (rank.index() + n - step) % n;
                group.send(sent.rows(to, 1), to).recv(received.rows(from, 1), from);
            }
            group.start().wait();
        });
}
BENCHMARK(all_to_all_by_hand)->Unit(benchmark::kMillisecond);

/// One collective of n ranks with shapes only; the cost may grow at most as n log n.
template <typename Collective>
void of_many_ranks(benchmark::State& state, Collective collective) {
    constexpr int kTimes = 10;
    const auto ranks = static_cast<int>(state.range(0));
    for ([[maybe_unused]] const auto _ : state)
        sim::make_cluster(shapes_only(ranks))->run([&](Rank& rank) {
            for (int i = 0; i < kTimes; ++i)
                collective(rank);
        });
    state.counters["collectives_a_rank"] =
        benchmark::Counter(static_cast<double>(state.iterations()) * kTimes * ranks,
                           benchmark::Counter::kIsRate);
}

void all_reduce(benchmark::State& state) {
    of_many_ranks(state, [](Rank& rank) {
        const Tensor buffer = rank.device().empty({1 << 18}, DType::f32);
        rank.world().all_reduce(buffer).wait();
    });
}
BENCHMARK(all_reduce)->Arg(1024)->Arg(4096)->Arg(16384)->Unit(benchmark::kMillisecond);

void reduce_scatter(benchmark::State& state) {
    of_many_ranks(state, [](Rank& rank) {
        const Tensor input = rank.device().empty({rank.size(), 16}, DType::f32);
        const Tensor output = rank.device().empty({16}, DType::f32);
        rank.world().reduce_scatter(output, input).wait();
    });
}
BENCHMARK(reduce_scatter)
    ->Arg(1024)
    ->Arg(4096)
    ->Arg(16384)
    ->Unit(benchmark::kMillisecond);

/// Makes groups of eight ranks, and groups with one rank of each such group.
void splits(benchmark::State& state) {
    of_many_ranks(state, [](Rank& rank) {
        const int me = rank.index();
        const auto row = rank.world().split(me / 8, me);
        const auto column = rank.world().split(me % 8, me);
        row->barrier().wait();
        column->barrier().wait();
    });
}
BENCHMARK(splits)->Arg(1024)->Arg(4096)->Arg(16384)->Unit(benchmark::kMillisecond);

/// Returns the resident bytes of this process.
double resident_bytes() {
    std::ifstream file("/proc/self/statm");
    double pages = 0;
    file >> pages >> pages;
    return pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

/// The memory that a device without tensors needs while all devices wait.
void memory_a_device(benchmark::State& state) {
    const auto ranks = static_cast<int>(state.range(0));
    double bytes = 0;
    for ([[maybe_unused]] const auto _ : state) {
        malloc_trim(0);
        const double before = resident_bytes();
        sim::make_cluster(shapes_only(ranks))->run([&](Rank& rank) {
            rank.world().barrier().wait();
            if (rank.index() == 0) bytes = resident_bytes() - before;
            rank.world().barrier().wait();
        });
    }
    state.counters["resident_bytes_a_device"] = bytes / ranks;
}
BENCHMARK(memory_a_device)
    ->Arg(1024)
    ->Arg(16384)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
