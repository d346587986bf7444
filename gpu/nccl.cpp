#include "gpu/nccl.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "gpu/stream.hpp"
#include "src/core/source_line.hpp"

namespace lockstep::gpu {

void check(ncclResult_t result, const char* call, const char* file, int line) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    const std::string what = call;
    const std::string detail = ncclGetLastError(nullptr);
    throw GpuError(
        fmt::format("NCCL failed with '{}'{} in {} at {}", ncclGetErrorString(result),
                    detail.empty() ? "" : " (" + detail + ")",
                    what.substr(0, what.find('(')), SourceLine{file, line}.text()));
}

ncclDataType_t nccl_type(DType dtype) {
    switch (dtype) {
        case DType::f32:
            return ncclFloat32;
        case DType::f64:
            return ncclFloat64;
        case DType::i32:
            return ncclInt32;
        case DType::bf16:
            return ncclBfloat16;
    }
    return ncclFloat32;
}

ncclRedOp_t nccl_operation(Reduction reduction) {
    switch (reduction) {
        case Reduction::sum:
            return ncclSum;
        case Reduction::product:
            return ncclProd;
        case Reduction::minimum:
            return ncclMin;
        case Reduction::maximum:
            return ncclMax;
        case Reduction::mean:
            return ncclAvg;
    }
    return ncclSum;
}

namespace {

ncclConfig_t without_blocking() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return config;
}

/// Both NCCL and the control line report a peer that died. Either report may arrive
/// first. The control line's report says more, so wait up to 2 seconds for it.
void give_the_others_a_moment(const Watch& watch) {
    if (watch.alone()) return;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (std::chrono::steady_clock::now() < until) {
        watch.check();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

}  // namespace

void NcclFamily::check() const {
    watch_.check();
    for (const Slot& slot : slots_) {
        if (slot.comm == nullptr) continue;
        ncclResult_t state = ncclSuccess;
        GPU_CHECK(ncclCommGetAsyncError(slot.comm, &state));
        if (state == ncclSuccess || state == ncclInProgress) continue;
        give_the_others_a_moment(watch_);
        gpu::check(state, "an operation launched before", __FILE__, __LINE__);
    }
}

void NcclFamily::abort() noexcept {
    aborted_ = true;
    ncclGroupStart();
    for (Slot& slot : slots_)
        if (slot.comm != nullptr) ncclCommAbort(std::exchange(slot.comm, nullptr));
    ncclGroupEnd();
}

NcclHandle NcclHandle::make(NcclFamily& family, const ncclUniqueId& id, int rank,
                            int size) {
    NcclHandle handle(family);
    ncclConfig_t config = without_blocking();
    GPU_CHECK(ncclCommInitRankConfig(&handle.slot_->comm, size, id, rank, &config));
    handle.settle(Call::first);
    return handle;
}

NcclHandle::NcclHandle(NcclHandle&& other) noexcept
    : family_(other.family_), slot_(std::exchange(other.slot_, nullptr)) {}

NcclHandle& NcclHandle::operator=(NcclHandle&& other) noexcept {
    close();
    family_ = other.family_;
    slot_ = std::exchange(other.slot_, nullptr);
    return *this;
}

NcclHandle::~NcclHandle() {
    close();
}

void NcclHandle::settle(Call call) const {
    constexpr auto kToMeet = std::chrono::seconds(30);
    const auto began = std::chrono::steady_clock::now();
    Pause pause;
    for (;;) {
        if (call == Call::first && std::chrono::steady_clock::now() - began < kToMeet)
            family_->watch().progress();
        ncclResult_t state = ncclSuccess;
        GPU_CHECK(ncclCommGetAsyncError(get(), &state));
        if (state == ncclSuccess) return;
        family_->check();
        pause();
    }
}

NcclHandle NcclHandle::split(int color, int key) const {
    NcclHandle part(*family_);
    ncclConfig_t config = without_blocking();
    GPU_CHECK(ncclCommSplit(get(), color < 0 ? NCCL_SPLIT_NOCOLOR : color, key,
                            &part.slot_->comm, &config));
    settle(Call::first);
    if (part) part.settle(Call::first);
    return part;
}

void NcclHandle::close() noexcept {
    if (slot_ == nullptr || slot_->comm == nullptr) return;
    try {
        family_->watch().check();
        GPU_CHECK(ncclCommFinalize(get()));
        settle();
        ncclCommDestroy(std::exchange(slot_->comm, nullptr));
    } catch (const std::exception&) {
        family_->abort();
    }
}

int nccl_version() {
    int version = 0;
    GPU_CHECK(ncclGetVersion(&version));
    return version;
}

std::string nccl_version_text(int version) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace lockstep::gpu
