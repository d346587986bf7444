#include "gpu/process.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/environment.hpp"
#include "gpu/launcher/supervise.hpp"
#include "src/comm/communicator.hpp"
#include "src/core/require.hpp"

namespace lockstep::gpu {

namespace {

std::string host_name() {
    char name[256] = {};
    ::gethostname(name, sizeof name - 1);
    return name;
}

/// Identifies the machine as NCCL does, by its name and boot ID: machines that are copies
/// of one image may have the same name.
std::string machine() {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    return host_name() + " " + boot;
}

/// Identifies a GPU, which may have different numbers in different processes.
std::string identity_of(int gpu) {
    cudaDeviceProp properties{};
    GPU_CHECK(cudaGetDeviceProperties(&properties, gpu));
    return {properties.uuid.bytes, sizeof properties.uuid.bytes};
}

}  // namespace

GpuProcess::GpuProcess(const ProcessOptions& options)
    : options_(options), watch_(options.control), family_(watch_) {
    set_environment(size());
    require_gpu();
    require_nccl();
    take_gpu();
    hosts_ = control() == nullptr ? std::vector<std::string>{machine()}
                                  : control()->all_gather(machine());
    if (control() != nullptr) control()->set_describe([this] { return describe(); });
    const Watching watching(control());
    worlds_.emplace(size(), meet());
}

GpuProcess::~GpuProcess() {
    if (control() != nullptr) control()->set_describe(nullptr);
}

/// Takes the GPU whose number is this process's number on its machine. If the launcher
/// lets each process see only one GPU, takes this GPU.
void GpuProcess::take_gpu() {
    int gpus = 0;
    GPU_CHECK(cudaGetDeviceCount(&gpus));
    const int local = control() == nullptr ? 0 : control()->placement().local_rank;
    if (options_.share_gpu && size() > 1) share_gpu(rank());
    GPU_CHECK(cudaSetDevice(local % gpus));
    require_kernels();
    if (control() == nullptr || options_.share_gpu) return;

    const std::vector<std::string> taken =
        control()->all_gather(identity_of(local % gpus));
    const auto mine = static_cast<std::size_t>(rank());
    const auto other = std::find(taken.begin(), taken.end(), taken[mine]);
    const auto first = static_cast<std::size_t>(other - taken.begin());
    if (first != mine)
        throw MissingError(fmt::format(
            "ranks {} and {} would both take GPU {} of {}: each rank needs one of its "
            "own, and the {} ranks on that machine see {}; use --backend cuda, or --set "
            "nccl=shared to try NCCL's calls on one GPU",
            first, mine, local % gpus, host_name(), control()->placement().local_size,
            gpus));
}

/// Makes the communicator of all processes. Rank 0 sends NCCL's id of the run over the
/// control line. If NCCL_COMM_ID is set, NCCL makes the id from it.
NcclHandle GpuProcess::meet() {
    ncclUniqueId id{};
    if (rank() == 0) GPU_CHECK(ncclGetUniqueId(&id));
    if (control() != nullptr) {
        const std::string bytes =
            control()->broadcast(std::string(id.internal, sizeof id.internal));
        std::copy_n(bytes.begin(), std::min(bytes.size(), sizeof id.internal),
                    id.internal);
    }
    return NcclHandle::make(family_, id, rank(), size());
}

NcclHandle& GpuProcess::world(int ranks) {
    require(!family_.aborted(),
            "an earlier run failed on this process and ended its communicators; it "
            "cannot take part in another run");
    const auto made = worlds_.find(ranks);
    if (made != worlds_.end()) return made->second;
    const Watching watching(control());
    const int color = rank() < ranks ? 0 : Communicator::kNoColor;
    return worlds_.emplace(ranks, worlds_.at(size()).split(color, rank())).first->second;
}

void GpuProcess::set_log(const OperationLog* log) {
    const std::lock_guard lock(log_mutex_);
    log_ = log;
}

std::string GpuProcess::describe() {
    const std::lock_guard lock(log_mutex_);
    return log_ == nullptr ? std::string() : log_->bytes();
}

std::unique_ptr<Process> Process::open(const ProcessOptions& options) {
    return std::make_unique<GpuProcess>(options);
}

}  // namespace lockstep::gpu
