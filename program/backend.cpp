#include "program/backend.hpp"

#include <algorithm>
#include <limits>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/cluster.hpp"
#include "gpu/launcher/supervise.hpp"
#include "gpu/survey.hpp"
#include "src/core/require.hpp"
#include "src/cost/cluster_spec.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep::programs {

namespace {

[[noreturn]] void refuse_backend(const Options& options, const std::string& problem) {
    throw MissingError(fmt::format("--backend {}: {}", options.backend, problem));
}

sim::DeviceFactory cuda_devices(const Options& options) {
    return [run = options.run](int index, DeviceMonitor& monitor) {
        return gpu::make_device(index, monitor, {run.tf32, run.sync, {}});
    };
}

/// Returns which backend `gpu` means: nccl if each rank has a GPU, else cuda. With
/// --check full it is always cuda.
std::string chosen_backend(const Options& options, int ranks, const gpu::Survey& here,
                           const std::optional<gpu::Placement>& placement) {
    // Processes that were started together must agree, even if they see different GPUs.
    const bool enough =
        placement ? placement->size > 1 || ranks == 1
                  : ranks <= static_cast<int>(here.gpus.size()) || options.run.shares_gpu;
    const bool checks = options.check == sim::CheckLevel::full;
    return enough && !checks && here.nccl_problem.empty() ? "nccl" : "cuda";
}

/// Returns the number of processes that nccl runs on.
int nccl_ranks(const Options& options, int default_ranks, int gpus,
               const std::optional<gpu::Placement>& placement) {
    if (placement) {
        require(options.ranks.value_or(placement->size) == placement->size, [&] {
            return fmt::format(
                "--ranks {}: {} started {} processes, and with --backend nccl each is a "
                "rank",
                *options.ranks, placement->launcher, placement->size);
        });
        return placement->size;
    }
    const int ranks = options.ranks.value_or(std::min(default_ranks, gpus));
    if (ranks > gpus && !options.run.shares_gpu)
        refuse_backend(
            options,
            fmt::format("{} ranks need {} GPUs, but this machine has {}; use --backend "
                        "cuda, or --set nccl=shared to try NCCL's calls on one GPU",
                        ranks, ranks, gpus));
    return ranks;
}

}  // namespace

const std::vector<Setting>& common_settings() {
    constexpr int kMostWorkers = 256;
    constexpr std::int64_t kMostSeed = std::numeric_limits<std::int64_t>::max();
    constexpr double kDay = 86400;
    static const std::vector<Setting> settings{
        {"workers", "threads for long operations; 0 means one per core",
         Whole{0, kMostWorkers, RunSettings().workers}},
        {"executor", "what runs the virtual devices",
         Choice{{"fibers", "threads"}, "fibers"}},
        {"schedule_seed", "permutes the order in which devices are run",
         Whole{0, kMostSeed}},
        {"numerics", "off computes only shapes; time, bytes and memory stay the same",
         Choice{{"on", "off"}, "on"}},
        {"tf32", "1 lets --backend cuda and nccl multiply f32 matrices in TF32",
         Whole{0, 1, 0}, "", false},
        {"sync",
         "1 makes --backend cuda and nccl wait for each operation, to find faults",
         Whole{0, 1, 0}, "", false},
        {"timeout", "seconds without progress after which --backend nccl gives up",
         Real{1, kDay, RunSettings().timeout_seconds}, "", false},
        {"nccl",
         "shared lets the ranks of --backend nccl share one GPU (slow, for a first try)",
         Choice{{"own", "shared"}, "own"}, "", false},
        {"trace", "hta writes one more trace per rank, for PyTorch's HTA",
         Choice{{"chrome", "hta"}, "chrome"}, "", false},
    };
    return settings;
}

RunSettings run_settings(const Settings& values) {
    RunSettings run;
    run.workers = static_cast<int>(values.integer("workers"));
    run.executor = values.word("executor") == "fibers" ? sim::ExecutorKind::fibers
                                                       : sim::ExecutorKind::threads;
    if (values.has("schedule_seed"))
        run.schedule_seed = static_cast<std::uint64_t>(values.integer("schedule_seed"));
    run.numbers = values.word("numerics") == "on";
    run.tf32 = values.integer("tf32") == 1;
    run.sync = values.integer("sync") == 1;
    run.timeout_seconds = values.number("timeout");
    run.shares_gpu = values.word("nccl") == "shared";
    run.hta_traces = values.word("trace") == "hta";
    return run;
}

Options resolved(Options options, int default_ranks,
                 const std::optional<gpu::Placement>& placement) {
    if (options.backend == "sim") return options;
    const gpu::Survey here = gpu::survey();
    if (!here.problem.empty()) refuse_backend(options, here.problem);
    if (options.backend == "gpu") {
        const int wanted = options.ranks.value_or(default_ranks);
        options.backend = chosen_backend(options, wanted, here, placement);
        if (!placement) options.ranks = wanted;
    }
    if (options.backend == "cuda") return options;
    if (!here.nccl_problem.empty()) refuse_backend(options, here.nccl_problem);
    require(options.check != sim::CheckLevel::full,
            "--check full: only virtual devices can see most of these mistakes; use "
            "--backend cuda or sim instead of nccl");
    require(options.has_numbers(),
            "--set numerics=off: --backend nccl always computes numbers; only --backend "
            "sim can leave them out");
    options.ranks =
        nccl_ranks(options, default_ranks, static_cast<int>(here.gpus.size()), placement);
    return options;
}

sim::ClusterOptions cluster_options(const Options& options, int ranks, bool trace) {
    sim::ClusterOptions cluster;
    cluster.ranks = ranks;
    cluster.trace = trace;
    cluster.check = options.check_level();
    cluster.unchecked = options.check ? options.unchecked : sim::checks_asked().without;
    try {
        cluster.spec = load_cluster(options.cluster);
    } catch (const UsageError& error) {
        throw UsageError(std::string("--cluster: ") + error.what());
    }
    cluster.numbers = options.has_numbers();
    cluster.executor = options.run.executor;
    cluster.workers = options.run.workers;
    cluster.schedule_seed = options.run.schedule_seed;
    if (options.backend == "cuda") cluster.device_factory = cuda_devices(options);
    return cluster;
}

std::unique_ptr<Cluster> make_cluster(const Options& options, int ranks, bool trace) {
    if (options.process != nullptr) return options.process->make_cluster(ranks, trace);
    return sim::make_cluster(cluster_options(options, ranks, trace));
}

std::optional<gpu::Placement> placement_for(const Options& asked) {
    if (asked.backend != "nccl" && asked.backend != "gpu") return std::nullopt;
    auto placement = gpu::find_placement(gpu::process_environment());
    if (placement) gpu::set_environment(placement->size);
    return placement;
}

void say_backend(const std::string& program, const Options& asked, const Options& options,
                 const std::optional<gpu::Placement>& placement) {
    // Only one process prints the line: rank 0, or the process that starts the ranks.
    const bool speaks =
        !placement || (placement->rank == 0 && placement->launcher != "lockstep");
    if (asked.backend != "gpu" || !speaks) return;
    os::write_all(STDERR_FILENO,
                  fmt::format("{}: --backend gpu is {} here\n", program, options.backend),
                  "standard error");
}

RunOptions run_options(const std::string& program, const Options& options,
                       int default_ranks, const std::vector<Setting>& declared) {
    RunOptions run;
    run.lesson = program;
    run.backend = options.backend;
    run.ranks = options.ranks.value_or(default_ranks);
    run.dtype = options.dtype;
    run.seed = options.seed;
    run.cluster = options.cluster;
    run.check = options.check_level() == sim::CheckLevel::full ? "full" : "cheap";
    run.settings = options.settings;
    for (const auto* known : {&common_settings(), &declared})
        for (const Setting& setting : *known)
            if (setting.recorded && !setting.standard_text().empty())
                run.settings.emplace(setting.key, setting.standard_text());
    if (options.backend == "sim") return run;
    const gpu::Survey here = gpu::survey();
    if (here.gpus.empty()) return run;
    run.gpu = {{"name", here.gpus.front().name},
               {"driver", here.driver},
               {"cuda", here.cuda},
               {"nccl", here.nccl}};
    return run;
}

}  // namespace lockstep::programs
