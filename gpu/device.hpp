#pragma once

#include <functional>
#include <memory>
#include <unordered_map>

#include "gpu/blas.hpp"
#include "gpu/cluster.hpp"
#include "gpu/kernels/reduce.hpp"
#include "gpu/stream.hpp"
#include "gpu/uploads.hpp"
#include "src/device/local_device.hpp"

namespace lockstep::gpu {

/// A device on the GPU that is current when the device is made. The same GPU must be
/// current whenever the device is used. An operation is put into the stream, and the call
/// returns at once. Only two kinds of calls wait: downloads, and operations with indices
/// that were written to after their upload.
///
/// Reruns give the same bits: the order of each sum depends only on shapes, no kernel
/// uses atomics, and each device gives cuBLAS its own workspace. Sums of all elements are
/// in f64, sums of rows and columns in the operands' type.
///
/// Throws OutOfMemoryError if memory runs out, GpuError if CUDA fails.
class Device final : public LocalDevice {
  public:
    Device(int index, DeviceMonitor& monitor, DeviceOptions options = {});
    ~Device() override;

    Stream& stream() { return stream_; }
    /// Initializes cuBLAS. This takes long, and should not happen while kernels wait for
    /// other devices.
    void prepare();
    /// Waits until the device has done all issued work, without blocking in CUDA. Throws
    /// what `while_waiting` throws.
    void synchronize();
    /// Call this if anything except this device's operations writes to `written`.
    void forget_indices(const Tensor& written);

  private:
    std::byte* do_allocate(const Storage& storage) override;
    void do_free(const Storage& storage) noexcept override;
    void do_upload(const Tensor& destination, const HostTensor& values) override;
    void do_download(HostTensor& values, const Tensor& source) override;

    /// Waits for the GPU, unless an upload or an earlier check has shown the index range.
    void check_indices(const Tensor& indices, std::int64_t bound) override;
    void compute_native(OperationRef operation) override;
    /// Also names the rank in errors. With `sync`, waits for the operation; until it
    /// ends, no other device of the process can begin an operation.
    void attempt(const char* operation, SourceLine at, FunctionRef<void()> use) override;
    bool takes_bf16(OperationRef operation) const override;
    /// Computes one operation. device_*.cpp specialize this, one file per family. If a
    /// specialization is missing, the program does not link.
    template <typename Op>
    void compute(const Op& operation);

    /// Runs `operation`, which reads `source`. If `source` belongs to another device, the
    /// operation runs after that device's earlier operations and before its later ones.
    void run_beside(const Tensor& source, FunctionRef<void()> operation);
    Blas& blas();
    /// destination (+)= factor * op(weights) y of each head.
    void sum_heads(const Heads& destination, const Tensor& weights, const Heads& y,
                   const HeadSumOptions& options, bool accumulate);
    /// Calls multiply(c, a) for the rows of a and c in tiles of 64 rows. The last tile is
    /// padded with zeros, so all tiles use the same kernel.
    void each_tile(const Tensor& c, const Tensor& a, bool accumulate,
                   FunctionRef<void(const Tensor&, const Tensor&)> multiply);
    /// Returns the table of these tokens' pages. Keeps it for calls with the same tokens.
    const Tensor& paged(const PagedTokensRef& tokens);
    /// Memory that an operation needs between its kernels.
    Tensor workspace_for_reduction();

    void while_waiting() const;
    void note_indices(const Tensor& destination, const HostTensor& values);

    DeviceOptions options_;
    bool attempts_ = false;  ///< inside an operation
    Stream stream_;
    Event reached_;
    Uploads uploads_;
    std::unique_ptr<Blas> blas_;  ///< made at the first product
    /// Kernels write here, and the host reads it.
    Pinned<FirstOutside> first_outside_;
    /// All numbers of the storage are in [0, this). They were uploaded or checked, and
    /// nothing has been written there since.
    std::unordered_map<const Storage*, std::int64_t> indices_below_;
    PagedTokens paged_tokens_;
    Tensor page_table_;  ///< of `paged_tokens_`
};

}  // namespace lockstep::gpu
