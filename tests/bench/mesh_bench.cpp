// Measures a step of a GPT on a mesh of many devices that compute only shapes. The step
// includes the creation of devices, layers and an optimizer. Also measures this process's
// peak memory.

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "sim/cluster.hpp"
#include "src/nn/optimizer.hpp"
#include "src/pipeline/gpt_on_mesh.hpp"

namespace {

using namespace lockstep;

/// The mesh is dp x pp 4 x cp 2 x tp 8. The GPT has 8 layers, and a replica has 2
/// micro-batches.
MeshPlan plan_of(int devices) {
    GptSizes sizes;
    sizes.vocabulary = 1024;
    sizes.context = 16;
    sizes.layers = 8;
    sizes.block.hidden = 1024;
    sizes.block.heads = 16;
    sizes.block.kv_heads = 8;
    sizes.tied = true;
    MeshOptions options;
    options.axes = {{"dp", devices / 64}, {"pp", 4}, {"cp", 2}, {"tp", 8}};
    options.micro_batches = 2;
    options.sequence = true;
    options.zero = 1;
    return {sizes, options};
}

void step_on_mesh(benchmark::State& state) {
    const MeshPlan plan = plan_of(static_cast<int>(state.range(0)));
    sim::ClusterOptions options;
    options.ranks = plan.shape().ranks();
    options.numbers = false;
    options.check = sim::CheckLevel::cheap;
    for ([[maybe_unused]] auto _ : state)
        sim::make_cluster(options)->run([&](Rank& rank) {
            GptOnMesh gpt(rank, plan, DType::bf16, 1);
            const auto optimizer =
                make_optimizer<AdamW>(gpt.sync().shards(), AdamWOptions{});
            const Tensor ids = rank.device().empty({8, 2}, DType::i32);
            const std::vector<MicroBatch> batches(2, {ids, ids, plan.weight()});
            gpt.step(batches, *optimizer, 1.0);
        });
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    state.counters["MiB"] = static_cast<double>(used.ru_maxrss) / 1024;
    state.counters["devices"] =
        benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)),
                           benchmark::Counter::kIsRate);
}
BENCHMARK(step_on_mesh)
    ->ArgName("devices")
    ->Arg(64)
    ->Arg(1024)
    ->Arg(4096)
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
