#include "lessons/runner/backend.hpp"

#include <limits>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/cost/cluster_spec.hpp"

namespace lockstep::lessons {

sim::ClusterOptions cluster_options(const LessonOptions& options, int ranks, bool trace) {
    if (options.backend != "sim")
        throw MissingError(
            fmt::format("--backend {}: this build has no GPU support", options.backend));

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
    return cluster;
}

std::unique_ptr<Cluster> make_cluster(const LessonOptions& options, int ranks,
                                      bool trace) {
    return sim::make_cluster(cluster_options(options, ranks, trace));
}

}  // namespace lockstep::lessons
