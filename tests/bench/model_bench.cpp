// Measures the simulation tax: a step of the lesson's model on 4 virtual devices, divided
// by direct calls of the same kernels. The two take turns in one process, so that the
// machine's noise affects both.

#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <vector>

#include "sim/cluster.hpp"
#include "sim/device.hpp"
#include "src/nn/char_model.hpp"
#include "src/nn/optimizer.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/data_parallel.hpp"
#include "tests/device/plain_monitor.hpp"

namespace {

using namespace lockstep;

constexpr int kRanks = 4;
constexpr int kSteps = 50;
constexpr CharModelSizes kSizes{64, 8, 16, 128};
constexpr std::int64_t kRows = 64;

/// A replica of the lesson's model on any device, and a micro-batch.
struct Replica {
    explicit Replica(Device& target)
        : device(target),
          model(make_char_model({target, DType::f32, 1, ""}, kSizes)),
          optimizer(model->parameters(), {0.2, 0.9, 0}) {
        HostTensor ids({kRows, kSizes.context}, DType::i32);
        HostTensor next({kRows}, DType::i32);
        for (std::int64_t i = 0; i < ids.elements(); ++i)
            ids.set(i, static_cast<double>(i * 7 % kSizes.vocabulary));
        for (std::int64_t i = 0; i < kRows; ++i)
            next.set(i, static_cast<double>(i % kSizes.vocabulary));
        batches.push_back({device.upload(ids), device.upload(next), 1.0 / kRanks});
    }

    Device& device;
    std::unique_ptr<Sequential> model;
    Sgd optimizer;
    std::vector<MicroBatch> batches;
};

double seconds_of(const auto& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
        .count();
}

/// Runs the steps of all ranks one after another on plain devices. The ranks' sums are
/// plain additions.
double direct_seconds() {
    test::PlainMonitor monitor;
    std::vector<std::unique_ptr<sim::CpuDevice>> devices;
    std::vector<std::unique_ptr<Replica>> replicas;
    for (int rank = 0; rank < kRanks; ++rank) {
        devices.push_back(std::make_unique<sim::CpuDevice>(rank, monitor));
        replicas.push_back(std::make_unique<Replica>(*devices.back()));
    }
    const auto step = [&] {
        for (auto& replica : replicas)
            accumulate_gradients(replica->device, *replica->model, cross_entropy_loss,
                                 replica->batches);
        const auto sums = replicas[0]->model->parameters();
        for (std::size_t p = 0; p < sums.size(); ++p) {
            const Tensor& sum = sums[p]->gradient;
            for (int rank = 1; rank < kRanks; ++rank)
                devices[0]->transfer_combine(sum,
                                             replicas[static_cast<std::size_t>(rank)]
                                                 ->model->parameters()[p]
                                                 ->gradient,
                                             Reduction::sum);
            for (int rank = 1; rank < kRanks; ++rank)
                devices[static_cast<std::size_t>(rank)]->transfer(
                    replicas[static_cast<std::size_t>(rank)]
                        ->model->parameters()[p]
                        ->gradient,
                    sum);
        }
        for (auto& replica : replicas)
            replica->optimizer.step();
    };
    step();
    return seconds_of([&] {
        for (int i = 0; i < kSteps; ++i)
            step();
    });
}

double simulated_seconds() {
    sim::ClusterOptions options;
    options.ranks = kRanks;
    options.spec = load_cluster("classroom");
    options.workers = 1;
    double seconds = 0;
    sim::make_cluster(options)->run([&](Rank& rank) {
        Replica replica(rank.device());
        const auto step = [&] {
            data_parallel_gradients(rank.device(), rank.world(), *replica.model,
                                    cross_entropy_loss, replica.batches);
            replica.optimizer.step();
        };
        step();
        rank.world().barrier().wait();
        const double own = seconds_of([&] {
            for (int i = 0; i < kSteps; ++i)
                step();
            rank.world().barrier().wait();
        });
        seconds = std::max(seconds, own);
    });
    return seconds;
}

/// Step and direct calls take turns in rounds. Reports the median ratio of the rounds.
void simulation_tax(benchmark::State& state) {
    std::vector<double> ratios;
    for ([[maybe_unused]] const auto _ : state) {
        const double direct = direct_seconds();
        ratios.push_back(simulated_seconds() / direct);
    }
    std::nth_element(ratios.begin(),
                     ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2),
                     ratios.end());
    state.counters["simulated_over_direct"] = ratios[ratios.size() / 2];
}
BENCHMARK(simulation_tax)->Iterations(31)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
