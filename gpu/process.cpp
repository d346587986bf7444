#include "gpu/process.hpp"

#include <algorithm>
#include <cstdlib>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/environment.hpp"
#include "src/comm/communicator.hpp"
#include "src/core/require.hpp"

namespace lockstep::gpu {

namespace {

std::string host_name() {
    char name[256] = {};
    ::gethostname(name, sizeof name - 1);
    return name;
}

}  // namespace

GpuProcess::GpuProcess(const ProcessOptions& options)
    : options_(options), watch_(options.control) {
    set_environment();
    require_gpu();
    require_nccl();
    take_gpu();
    hosts_ = control() == nullptr ? std::vector<std::string>{host_name()}
                                  : control()->all_gather(host_name());
    if (control() != nullptr) control()->set_describe([this] { return describe(); });
    const Watching watching(control());
    worlds_.emplace(size(), meet());
}

GpuProcess::~GpuProcess() {
    if (control() != nullptr) control()->set_describe(nullptr);
}

void GpuProcess::take_gpu() {
    int gpus = 0;
    GPU_CHECK(cudaGetDeviceCount(&gpus));
    const int local = control() == nullptr ? 0 : control()->placement().local_rank;
    const int here = control() == nullptr ? 1 : control()->placement().local_size;
    if (here > gpus && !options_.share_gpu)
        throw MissingError(
            fmt::format("{} ranks on this machine need {} GPUs, but it has {}; use "
                        "--backend cuda, or "
                        "--set nccl=shared to try NCCL's calls on one GPU",
                        here, here, gpus));
    if (options_.share_gpu && size() > 1) share_gpu(rank());
    GPU_CHECK(cudaSetDevice(local % gpus));
}

/// NCCL's own name for the run comes from rank 0 over the control line; NCCL_COMM_ID,
/// where it is set, is what NCCL makes it of.
NcclHandle GpuProcess::meet() {
    ncclUniqueId id{};
    if (rank() == 0) GPU_CHECK(ncclGetUniqueId(&id));
    if (control() != nullptr) {
        const std::string bytes =
            control()->broadcast(std::string(id.internal, sizeof id.internal));
        std::copy_n(bytes.begin(), std::min(bytes.size(), sizeof id.internal),
                    id.internal);
    }
    return NcclHandle::make(id, rank(), size(), watch_);
}

NcclHandle& GpuProcess::world(int ranks) {
    const auto made = worlds_.find(ranks);
    if (made != worlds_.end()) return made->second;
    const Watching watching(control());
    const int color = rank() < ranks ? 0 : Communicator::kNoColor;
    return worlds_.emplace(ranks, worlds_.at(size()).split(color, rank())).first->second;
}

void GpuProcess::abort() noexcept {
    for (auto& [ranks, handle] : worlds_)
        handle.abort();
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
