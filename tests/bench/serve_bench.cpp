// Measures a service of 1,000 requests, with shapes only, and this process's peak memory.
// The model is LLaMA-2 13B with a fifth of its heads of keys. The model runs on 64
// devices in tensor-parallel groups.

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "sim/cluster.hpp"
#include "src/inference/gpt_service.hpp"
#include "src/inference/request_mix.hpp"
#include "src/inference/service_report.hpp"
#include "src/nn/published_sizes.hpp"

namespace {

using namespace lockstep;

void serve_thousand(benchmark::State& state) {
    const int replicas = 8, ways = 8;
    GptSizes sizes = llama2_13b(2048);
    sizes.block.kv_heads = 8;
    const auto all =
        make_requests({1000, 100, 64, 512, 16, 128, sizes.vocabulary, /*seed=*/1});
    const ServicePlan plan(sizes, {.axes = {{"dp", replicas}, {"tp", ways}},
                                   .cache = {.pages = 4096, .page_rows = 16},
                                   .seed = 7});
    sim::ClusterOptions options;
    options.ranks = replicas * ways;
    options.numbers = false;
    options.check = sim::CheckLevel::cheap;
    options.spec = load_cluster("h100-data-sheet");
    ServiceReport report;
    for ([[maybe_unused]] auto _ : state) {
        std::vector<std::vector<Served>> served(replicas);
        sim::make_cluster(options)->run([&](Rank& rank) {
            GptService service(rank, plan);
            auto done = service.serve(all);
            if (service.speaks())
                served[static_cast<std::size_t>(service.replica())] = std::move(done);
        });
        std::vector<Served> together;
        for (auto& of_replica : served)
            std::move(of_replica.begin(), of_replica.end(), std::back_inserter(together));
        report = report_of(together, {});
    }
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    state.counters["MiB"] = static_cast<double>(used.ru_maxrss) / 1024;
    state.counters["requests"] = static_cast<double>(report.requests);
    state.counters["virtual_seconds"] = report.seconds;
    state.counters["first_token_ms"] = static_cast<double>(report.to_first.p50) / 1e9;
    state.counters["next_token_ms"] = static_cast<double>(report.per_token.p50) / 1e9;
}
BENCHMARK(serve_thousand)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
