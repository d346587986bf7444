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

/// A device whose numbers come from the GPU that is current where it is made, and has to
/// be wherever it is used. Operations go into its stream and return; only downloads wait,
/// and operations that take indices which something has been written to since their
/// upload.
///
/// Reruns give the same bits: sums are taken in an order that depends on shapes alone,
/// without atomics, products by cuBLAS in a workspace of the device's own. Sums of all
/// elements are taken in f64, sums of rows and columns in the operands' type.
///
/// Throws OutOfMemoryError where memory runs out, GpuError where CUDA fails.
class Device final : public LocalDevice {
  public:
    Device(int index, DeviceMonitor& monitor, DeviceOptions options = {});
    ~Device() override;

    Stream& stream() { return stream_; }
    /// Makes ready what takes long the first time, and had better not be made beside
    /// kernels that wait for other devices: cuBLAS.
    void prepare();
    /// Waits until the device has done all that was issued, without blocking in CUDA;
    /// throws what `while_waiting` throws.
    void synchronize();
    /// To be told by whoever writes there other than by this device's operations.
    void forget_indices(const Tensor& written);

  private:
    std::byte* do_allocate(const Storage& storage) override;
    void do_free(const Storage& storage) noexcept override;
    void do_upload(const Tensor& destination, const HostTensor& values) override;
    void do_download(HostTensor& values, const Tensor& source) override;

    /// Waits, except for indices that are known since they were uploaded.
    void check_indices(const Tensor& indices, std::int64_t bound) override;
    void compute_native(OperationRef operation) override;
    /// Names the rank too. If operations are waited for, it waits, and lets no other
    /// device of the process begin one meanwhile.
    void attempt(const char* operation, SourceLine at, FunctionRef<void()> use) override;
    bool takes_bf16(OperationRef operation) const override;
    /// How each operation is computed: device_*.cpp specialize it, a file a family. One
    /// that is forgotten does not link.
    template <typename Op>
    void compute(const Op& operation);

    /// Runs `operation`, which reads `source`, of this device or another: in the order in
    /// which the host asks, before and after.
    void beside(const Tensor& source, FunctionRef<void()> operation);
    Blas& blas();
    /// destination (+)= factor * op(weights) y of each head.
    void sum_heads(const Heads& destination, const Tensor& weights, const Heads& y,
                   const HeadSumOptions& options, bool accumulate);
    /// Calls multiply(c, a), both of 64 rows, for the rows of a and c in tiles, the last
    /// of which is filled up with zeros: so all go the same way.
    void each_tile(const Tensor& c, const Tensor& a, bool accumulate,
                   FunctionRef<void(const Tensor&, const Tensor&)> multiply);
    /// Gives the table of where these tokens lie; keeps it until others are asked for.
    const Tensor& paged(const PagedTokensRef& tokens);
    /// Memory for what an operation keeps between its kernels.
    Tensor workspace_for_reduction();

    void while_waiting() const;
    void note_indices(const Tensor& destination, const HostTensor& values);

    DeviceOptions options_;
    bool attempts_ = false;  ///< within an operation
    Stream stream_;
    Event reached_;
    Uploads uploads_;
    std::unique_ptr<Blas> blas_;  ///< from the first product on
    /// Where kernels write to and the host reads.
    Pinned<FirstOutside> first_outside_;
    /// All numbers of a storage lie in [0, this): they were uploaded, or looked at, and
    /// nothing has been written there since.
    std::unordered_map<const Storage*, std::int64_t> indices_below_;
    PagedTokens paged_tokens_;
    Tensor page_table_;  ///< of those
};

}  // namespace lockstep::gpu
