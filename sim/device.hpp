#pragma once

#include "sim/block_cache.hpp"
#include "src/device/local_device.hpp"

namespace lockstep::sim {

/// A virtual device. Its memory is on the host, and the calling thread computes.
///
/// Results depend only on the operands' values and shapes, not on their addresses or the
/// thread. Elementwise results do not depend on the element's place either, so a shard
/// has the same bits as its part of the whole. Sums are computed in f64, products of
/// matrices in the operands' type.
class CpuDevice final : public LocalDevice {
  public:
    /// Pinned memory comes from `pages`, which must outlive the device. Without `pages`,
    /// pinned memory is like any other memory.
    CpuDevice(int index, DeviceMonitor& monitor, PinnedPages* pages = nullptr);
    ~CpuDevice() override;

    /// From now on new memory is NaN (-1 in integers) until it is written. So a program
    /// that reads new memory too early gets the same values in each run, and notices.
    void spoil_new_memory() { spoils_ = true; }
    /// From now on, bytes that are kept for later are also counted in `total`, which must
    /// outlive the device.
    void count_kept_memory_in(std::int64_t& total) { memory_.count_kept_in(total); }
    void drop_kept_memory() noexcept { memory_.drop_kept(); }

  private:
    std::byte* do_allocate(const Storage& storage) override;
    void do_free(const Storage& storage) noexcept override;
    void do_upload(const Tensor& destination, const HostTensor& values) override;
    void do_download(HostTensor& values, const Tensor& source) override;

    void check_indices(const Tensor& indices, std::int64_t bound) override;
    void compute_native(OperationRef operation) override;
    /// Computes an operation. device_*.cpp specialize this template, one file per family.
    /// If a specialization is missing, the program does not link.
    template <typename Op>
    void compute(const Op& operation);

    BlockCache memory_;
    PinnedPages* pages_;
    bool spoils_ = false;
};

}  // namespace lockstep::sim
