#include "gpu/device.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

#include "gpu/check.hpp"
#include "gpu/kernels/attention.hpp"
#include "src/device/ledger.hpp"

namespace lockstep::gpu {

namespace {

cudaMemPool_t default_pool() {
    int gpu = 0;
    GPU_CHECK(cudaGetDevice(&gpu));
    cudaMemPool_t pool = nullptr;
    GPU_CHECK(cudaDeviceGetDefaultMemPool(&pool, gpu));
    return pool;
}

/// Lets CUDA keep freed memory for this process's later allocations.
void keep_freed_memory() {
    std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
    GPU_CHECK(
        cudaMemPoolSetAttribute(default_pool(), cudaMemPoolAttrReleaseThreshold, &all));
}

/// While this object lives, the flag is set.
class Within {
  public:
    explicit Within(bool& flag) : flag_(flag) { flag_ = true; }
    ~Within() { flag_ = false; }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

  private:
    bool& flag_;
};

}  // namespace

Device::Device(int index, DeviceMonitor& monitor, DeviceOptions options)
    : LocalDevice(index, monitor),
      options_(std::move(options)),
      first_outside_(static_cast<FirstOutside*>(allocate_pinned(sizeof(FirstOutside)))) {
    keep_freed_memory();
}

Device::~Device() {
    cudaStreamSynchronize(stream_.get());
    free_all();
}

void Device::synchronize() {
    stream_.record(reached_);
    for (Pause pause; !reached_.done(); pause())
        while_waiting();
}

void Device::while_waiting() const {
    if (options_.while_waiting) options_.while_waiting();
}

std::byte* Device::do_allocate(const Storage& storage) {
    const std::int64_t bytes = storage.bytes;
    void* data = nullptr;
    const auto allocate = [&] {
        return cudaMallocAsync(&data, static_cast<std::size_t>(bytes), stream_.get());
    };
    cudaError_t result = allocate();
    if (result == cudaErrorMemoryAllocation) {
        // CUDA may keep freed memory in pieces that are too small: give it back and try
        // again.
        cudaGetLastError();  // clears the error: no later launch reports it
        synchronize();
        GPU_CHECK(cudaMemPoolTrimTo(default_pool(), 0));
        result = allocate();
    }
    if (result == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        std::size_t free = 0;
        std::size_t total = 0;
        GPU_CHECK(cudaMemGetInfo(&free, &total));
        throw out_of_memory(*this, bytes, static_cast<std::int64_t>(free),
                            static_cast<std::int64_t>(total));
    }
    check(result, "cudaMallocAsync", __FILE__, __LINE__);
    return static_cast<std::byte*>(data);
}

void Device::do_free(const Storage& storage) noexcept {
    indices_below_.erase(&storage);
    cudaFreeAsync(storage.data, stream_.get());
}

void Device::do_upload(const Tensor& destination, const HostTensor& values) {
    if (values.dtype() == DType::i32) note_indices(destination, values);
    uploads_.put(destination.bytes_begin(), values.data(), values.bytes(), stream_,
                 [this] { while_waiting(); });
}

void Device::do_download(HostTensor& values, const Tensor& source) {
    synchronize();
    GPU_CHECK(cudaMemcpyAsync(values.data(), source.bytes_begin(),
                              static_cast<std::size_t>(source.bytes()),
                              cudaMemcpyDeviceToHost, stream_.get()));
    GPU_CHECK(cudaStreamSynchronize(stream_.get()));
}

/// Checks uploaded numbers while they are on the host; asking the GPU would mean a wait.
void Device::note_indices(const Tensor& destination, const HostTensor& values) {
    const Storage* const storage = destination.storage();
    const auto known = indices_below_.find(storage);
    const auto [least, most] = std::ranges::minmax(values.values<std::int32_t>());
    const bool is_all = destination.bytes() == storage->bytes;
    if (least < 0)
        forget_indices(destination);
    else if (is_all)
        indices_below_[storage] = std::int64_t{most} + 1;
    else if (known != indices_below_.end())
        known->second = std::max(known->second, std::int64_t{most} + 1);
}

void Device::forget_indices(const Tensor& written) {
    if (written.dtype() == DType::i32) indices_below_.erase(written.storage());
}

void Device::compute_native(OperationRef operation) {
    operation.visit([this](const auto& op) {
        for (const Operand& operand : op.operands())
            if (operand.is_written()) forget_indices(*operand.tensor);
        compute(op);
    });
}

void Device::attempt(const char* operation, SourceLine at, FunctionRef<void()> use) {
    if (attempts_) return use();  // a part of another operation
    static std::mutex turn;
    static std::string first_fault;  // of all devices that share the GPU
    std::unique_lock lock(turn, std::defer_lock);
    if (options_.sync) lock.lock();
    const Within within(attempts_);
    try {
        use();
        if (options_.sync) synchronize();
    } catch (const GpuError& error) {
        const GpuError mine = named(error, index(), during(operation, at), options_.sync);
        if (!options_.sync || fault_of_gpu() == cudaSuccess) throw GpuError(mine);
        if (first_fault.empty()) first_fault = mine.what();
        throw GpuError(first_fault);
    }
}

/// gpu/README.md gives the reasons.
bool Device::takes_bf16(OperationRef operation) const {
    bool takes = true;
    operation.visit([&]<typename Op>(const Op& op) {
        if constexpr (std::is_same_v<Op, ops::Attend>)
            takes = attends_in_bf16(op.heads.queries.width);
        if constexpr (std::is_same_v<Op, ops::AttendBackward>) {
            const auto& [dq, dk, dv] = op.gradients;
            takes = attends_in_bf16(dq.width) && !dq.meets(dk) && !dk.meets(dv) &&
                    !dv.meets(dq);
        }
        if constexpr (std::is_same_v<Op, ops::AddHeadSums>)
            takes = op.destination.heads >= op.y.heads;
        if constexpr (std::is_same_v<Op, ops::HeadSums>)
            takes = op.destination().heads >= op.y.heads;
        if constexpr (std::is_same_v<Op, ops::Orthonormalize>) takes = false;
    });
    return takes;
}

Tensor Device::workspace_for_reduction() {
    return scratch({kReduceBytes / bytes_of(DType::f64)}, DType::f64);
}

}  // namespace lockstep::gpu
