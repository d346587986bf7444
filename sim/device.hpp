#pragma once

#include "sim/block_cache.hpp"
#include "src/device/local_device.hpp"

namespace lockstep::sim {

/// A virtual device: memory on the host, arithmetic on the thread that runs it.
///
/// Results depend on the operands' values and shapes alone: not on where in memory they
/// lie, nor on the thread. What is computed element by element does not depend on the
/// element's place either, so a shard's values are the bits of the whole's. Sums are
/// taken in f64, products of matrices in the operands' type.
class CpuDevice final : public LocalDevice {
  public:
    /// Pinned memory comes from `pages`, which then outlive the device; without, it is
    /// like any other.
    CpuDevice(int index, DeviceMonitor& monitor, PinnedPages* pages = nullptr);
    ~CpuDevice() override;

    /// From now on new memory is NaN, or -1 in integers, until something is written
    /// there: who reads it before gets the same in each run, and notices.
    void spoil_new_memory() { spoils_ = true; }
    /// From now on the bytes that it keeps for later count in `total`, too, which
    /// outlives it.
    void count_kept_memory_in(std::int64_t& total) { memory_.count_kept_in(total); }
    void drop_kept_memory() noexcept { memory_.drop_kept(); }

  private:
    std::byte* do_allocate(const Storage& storage) override;
    void do_free(const Storage& storage) noexcept override;
    void do_upload(const Tensor& destination, const HostTensor& values) override;
    void do_download(HostTensor& values, const Tensor& source) override;

    void check_indices(const Tensor& indices, std::int64_t bound) override;
    void compute_native(OperationRef operation) override;
    /// Computes an operation: device_*.cpp specialize it, a file a family. One that is
    /// forgotten does not link.
    template <typename Op>
    void compute(const Op& operation);

    BlockCache memory_;
    PinnedPages* pages_;
    bool spoils_ = false;
};

}  // namespace lockstep::sim
