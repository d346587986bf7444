#include "sim/device.hpp"

#include <cstring>

namespace lockstep::sim {

CpuDevice::CpuDevice(int index, DeviceMonitor& monitor, PinnedPages* pages)
    : LocalDevice(index, monitor), pages_(pages) {}

CpuDevice::~CpuDevice() {
    free_all();
}

std::byte* CpuDevice::do_allocate(const Storage& storage) {
    if (storage.pinned && pages_ != nullptr) return pages_->allocate(storage.bytes);
    std::byte* const block = memory_.take(storage.bytes);
    // These bytes are a NaN in each floating-point type.
    if (spoils_) std::memset(block, 0xFF, static_cast<std::size_t>(storage.bytes));
    return block;
}

void CpuDevice::do_free(const Storage& storage) noexcept {
    if (storage.pinned && pages_ != nullptr) return pages_->free(storage.data);
    memory_.give_back(storage.data, storage.bytes);
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
