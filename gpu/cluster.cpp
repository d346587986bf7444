#include "gpu/cluster.hpp"

#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "gpu/comm.hpp"
#include "gpu/device.hpp"
#include "gpu/environment.hpp"
#include "gpu/process.hpp"
#include "gpu/rank_run.hpp"
#include "src/core/require.hpp"
#include "src/run/naming_rank.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::gpu {

namespace {

/// A cluster of the first `ranks` processes.
class GpuCluster final : public Cluster {
  public:
    GpuCluster(GpuProcess& process, int ranks, bool trace)
        : process_(process), ranks_(ranks), trace_(trace) {}

    int size() const override { return ranks_; }
    RunReport run(const Program& program) override;

  private:
    RunReport run_here(const Program& program, NcclHandle& handle, OperationLog& log);
    void run_program(const Program& program, NcclHandle& handle, RankRun& run,
                     RankReport& report);

    GpuProcess& process_;
    int ranks_;
    bool trace_;
};

/// While this object lives, describe() reports the log.
class Telling {
  public:
    Telling(GpuProcess& process, const OperationLog& log) : process_(process) {
        process_.set_log(&log);
    }
    ~Telling() { process_.set_log(nullptr); }
    Telling(const Telling&) = delete;
    Telling& operator=(const Telling&) = delete;

  private:
    GpuProcess& process_;
};

/// Merges the processes' reports. Each of the first `ranks` processes reports on one
/// rank.
RunReport merged(const std::vector<std::string>& parts, int ranks) {
    const auto append = [](auto& to, auto& from) {
        to.insert(to.end(), std::make_move_iterator(from.begin()),
                  std::make_move_iterator(from.end()));
    };
    RunReport whole;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        RunReport part = read_report(parts[rank]);
        const std::size_t expected = rank < static_cast<std::size_t>(ranks) ? 1 : 0;
        require(part.ranks.size() == expected,
                "process {} reported on {} ranks; expected a report on {}", rank,
                part.ranks.size(), expected);
        append(whole.ranks, part.ranks);
        append(whole.trace, part.trace);
        append(whole.memory_trace, part.memory_trace);
    }
    return whole;
}

RunReport GpuCluster::run(const Program& program) {
    OperationLog log(ranks_);
    // Kept to the end, because ranks that wait for this rank ask for its log.
    const Telling telling(process_, log);
    NcclHandle& world = process_.world(ranks_);
    RunReport mine;
    if (process_.rank() < ranks_) mine = run_here(program, world, log);
    Control* const control = process_.control();
    if (control == nullptr) {
        process_.examine({log.bytes()});
        return mine;
    }
    process_.examine(control->all_gather(log.bytes()));
    return merged(control->all_gather(report_bytes(mine)), ranks_);
}

RunReport GpuCluster::run_here(const Program& program, NcclHandle& handle,
                               OperationLog& log) {
    RankRun run(process_.rank(), trace_, process_.device_options(), process_.nccl(),
                process_.hosts(), log, process_.make_host());
    RunReport report;
    RankReport& mine = report.ranks.emplace_back();
    try {
        const auto somewhere = [] { return std::string(); };
        run.naming(somewhere, [&] {
            run.device.prepare();
            const Watching watching(process_.control());
            run_program(program, handle, run, mine);
        });
    } catch (...) {
        // First tell the other processes. Then abort NCCL: otherwise the device would
        // wait for kernels that spin for a peer.
        process_.tell_failure();
        if (process_.size() > 1) process_.nccl().abort();
        throw;
    }
    run.spans.finish();
    mine.time = run.spans.time();
    mine.memory = run.monitor.memory();
    mine.flops = run.monitor.flops();
    mine.host = run.host_monitor.report();
    for (const Channel& channel : run.channels)
        append_traffic(channel.name, channel.traffic, mine.traffic);
    run.spans.move_into(report);
    return report;
}

void GpuCluster::run_program(const Program& program, NcclHandle& handle, RankRun& run,
                             RankReport& report) {
    const std::unique_ptr<Comm> world = Comm::make_world(run, handle, ranks_);
    // Time 0 is when all ranks have met.
    world->meet();
    run.spans.begin(run.device.stream());
    Rank rank(run.device, *world, report);
    try {
        program(rank);
    } catch (...) {
        rethrow_naming_rank(process_.rank(), std::current_exception());
    }
    world->require_groups_started();
    if (run.mistake) std::rethrow_exception(run.mistake);
    run.log.ended();
    run.finish();
}

}  // namespace

std::unique_ptr<lockstep::Device> make_device(int index, DeviceMonitor& monitor,
                                              DeviceOptions options) {
    require_gpu();
    require_kernels();
    return std::make_unique<gpu::Device>(index, monitor, std::move(options));
}

std::unique_ptr<Cluster> GpuProcess::make_cluster(int ranks, bool trace) {
    require(ranks >= 1 && ranks <= size(),
            "the program asks for a cluster of {} ranks, but this run has {} {}: with "
            "--backend nccl each rank is a process",
            ranks, size(), size() == 1 ? "process" : "processes");
    return std::make_unique<GpuCluster>(*this, ranks, trace);
}

}  // namespace lockstep::gpu
