#include "lessons/runner/backend.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "gpu/cluster.hpp"
#include "gpu/survey.hpp"
#include "src/core/require.hpp"
#include "src/cost/cluster_spec.hpp"

namespace lockstep::lessons {

namespace {

[[noreturn]] void refuse_backend(const LessonOptions& options,
                                 const std::string& problem) {
    throw MissingError(fmt::format("--backend {}: {}", options.backend, problem));
}

sim::DeviceFactory cuda_devices(const LessonOptions& options) {
    return [tf32 = uses_tf32(options)](int index, DeviceMonitor& monitor) {
        return gpu::make_device(index, monitor, {tf32, {}});
    };
}

}  // namespace

bool shares_gpu(const LessonOptions& options) {
    return options.word("nccl", "own", {"own", "shared"}) == "shared";
}

bool uses_tf32(const LessonOptions& options) {
    return options.integer("tf32", 0, 0, 1) == 1;
}

double timeout_seconds(const LessonOptions& options) {
    constexpr double kDay = 86400;
    return options.number("timeout", 60, 1, kDay);
}

LessonOptions resolved(LessonOptions options, int default_ranks,
                       const std::optional<gpu::Placement>& placement) {
    if (options.backend == "sim") return options;
    const gpu::Survey here = gpu::survey();
    if (!here.problem.empty()) refuse_backend(options, here.problem);
    const auto gpus = static_cast<int>(here.gpus.size());
    if (options.backend == "gpu") {
        // Processes that were started together take the same, whatever each one sees.
        const bool together = placement && placement->size > 1;
        const int wanted = options.ranks.value_or(std::min(default_ranks, gpus));
        const bool enough = together || wanted <= gpus || shares_gpu(options);
        options.backend = enough && here.nccl_problem.empty() ? "nccl" : "cuda";
    }
    if (options.backend == "cuda") return options;
    if (!here.nccl_problem.empty()) refuse_backend(options, here.nccl_problem);
    require(options.word("numerics", "on", {"on", "off"}) == "on", [] {
        return std::string(
            "--set numerics=off: --backend nccl computes numbers; shapes "
            "only are for --backend sim");
    });

    if (placement) {
        require(options.ranks.value_or(placement->size) == placement->size, [&] {
            return fmt::format(
                "--ranks {}: {} started {} processes, and with --backend "
                "nccl each is a rank",
                *options.ranks, placement->launcher, placement->size);
        });
        options.ranks = placement->size;
        return options;
    }
    if (!options.ranks) options.ranks = std::min(default_ranks, gpus);
    if (*options.ranks > gpus && !shares_gpu(options))
        refuse_backend(options,
                       fmt::format("{} ranks need {} GPUs, but this machine has {}; use "
                                   "--backend cuda, or --set nccl=shared to try NCCL's "
                                   "calls on one GPU",
                                   *options.ranks, *options.ranks, gpus));
    return options;
}

sim::ClusterOptions cluster_options(const LessonOptions& options, int ranks, bool trace) {
    sim::ClusterOptions cluster;
    cluster.ranks = ranks;
    cluster.trace = trace;
    try {
        cluster.spec = load_cluster(options.cluster);
    } catch (const UsageError& error) {
        throw UsageError(std::string("--cluster: ") + error.what());
    }
    cluster.numbers = options.word("numerics", "on", {"on", "off"}) == "on";
    cluster.executor =
        options.word("executor", "fibers", {"fibers", "threads"}) == "fibers"
            ? sim::ExecutorKind::fibers
            : sim::ExecutorKind::threads;
    constexpr int kMostWorkers = 256;
    cluster.workers = static_cast<int>(options.integer("workers", 0, 0, kMostWorkers));
    if (options.settings.contains("schedule_seed"))
        cluster.schedule_seed = static_cast<std::uint64_t>(options.integer(
            "schedule_seed", 0, 0, std::numeric_limits<std::int64_t>::max()));
    if (options.backend == "cuda") cluster.device_factory = cuda_devices(options);
    return cluster;
}

std::unique_ptr<Cluster> make_cluster(const LessonOptions& options, int ranks,
                                      bool trace) {
    if (options.process != nullptr) return options.process->make_cluster(ranks, trace);
    return sim::make_cluster(cluster_options(options, ranks, trace));
}

}  // namespace lockstep::lessons
