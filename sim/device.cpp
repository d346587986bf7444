#include "sim/device.hpp"

#include <cstring>
#include <new>

namespace lockstep::sim {

namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

CpuDevice::CpuDevice(int index, DeviceMonitor& monitor, PinnedPages* pages)
    : LocalDevice(index, monitor), pages_(pages) {}

CpuDevice::~CpuDevice() {
    free_all();
}

std::byte* CpuDevice::do_allocate(const Storage& storage) {
    if (storage.pinned && pages_ != nullptr) return pages_->allocate(storage.bytes);
    const auto bytes = static_cast<std::size_t>(storage.bytes);
    void* const memory = ::operator new(bytes, kAlignment);
    if (spoils_) std::memset(memory, 0xFF, bytes);  // a NaN in each floating-point type
    return static_cast<std::byte*>(memory);
}

void CpuDevice::do_free(const Storage& storage) noexcept {
    if (storage.pinned && pages_ != nullptr) return pages_->free(storage.data);
    ::operator delete(storage.data, kAlignment);
}

void CpuDevice::do_upload(const Tensor& destination, const HostTensor& values) {
    std::memcpy(destination.bytes_begin(), values.data(),
                static_cast<std::size_t>(values.bytes()));
}

void CpuDevice::do_download(HostTensor& values, const Tensor& source) {
    std::memcpy(values.data(), source.bytes_begin(),
                static_cast<std::size_t>(source.bytes()));
}

void CpuDevice::check_indices(const Tensor& indices, std::int64_t bound) {
    const auto* index = indices.data<std::int32_t>();
    for (std::int64_t i = 0; i < indices.elements(); ++i)
        if (index[i] < 0 || index[i] >= bound) throw IndexOutside{i, index[i]};
}

void CpuDevice::compute_native(OperationRef operation) {
    operation.visit([this](const auto& op) { compute(op); });
}

}  // namespace lockstep::sim
