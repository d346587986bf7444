// Measures how fast runs of shapes only simulate a transformer of any size.

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "sim/cluster.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/vocabulary_parallel.hpp"

namespace {

using namespace lockstep;

/// GPT-3's sizes (Brown et al. 2020, 2005.14165, table 2.1).
GptSizes gpt_3() {
    GptSizes sizes;
    sizes.vocabulary = 50'257;
    sizes.context = 2048;
    sizes.layers = 96;
    sizes.block.hidden = 12'288;
    sizes.block.heads = 96;
    return sizes;
}

void training_step(Rank& rank, TensorParallel& tp) {
    const GptSizes sizes = gpt_3();
    Device& device = rank.device();
    const auto gpt =
        make_gpt({device, DType::bf16, 1, ""}, sizes, tensor_parallel({}, tp));
    AdamW optimizer(gpt->parameters());
    const Tensor ids = device.empty({sizes.context, 1}, DType::i32);
    Saved saved;
    const Tensor logits = gpt->forward(ids, saved);
    const LossResult loss =
        vocabulary_parallel_cross_entropy(tp, logits, ids, sizes.vocabulary);
    gpt->backward(loss.gradient, saved);
    complete_gradients(gpt->parameters());
    optimizer.step();
}

/// One step, with the creation of the model. Reports this process's peak memory in MiB,
/// and each device's virtual time and peak memory in GB.
template <typename Regions>
void gpt_3_step(benchmark::State& state) {
    sim::ClusterOptions options;
    options.ranks = static_cast<int>(state.range(0));
    options.spec = load_cluster("h100-data-sheet");
    options.spec.memory_bytes = 0;
    options.numbers = false;
    RunReport report;
    for ([[maybe_unused]] const auto _ : state)
        report = sim::make_cluster(options)->run([](Rank& rank) {
            Regions tp(rank.device(), rank.world());
            training_step(rank, tp);
        });
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    state.counters["resident_MiB"] = static_cast<double>(used.ru_maxrss) / 1024;
    state.counters["virtual_seconds"] = static_cast<double>(report.makespan()) * 1e-12;
    state.counters["peak_GB"] =
        static_cast<double>(report.ranks.front().memory.peak) * 1e-9;
}
BENCHMARK(gpt_3_step<TensorParallel>)->Arg(8)->Unit(benchmark::kMillisecond);
BENCHMARK(gpt_3_step<SequenceParallel>)->Arg(8)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
