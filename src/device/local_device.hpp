#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "src/core/function_ref.hpp"
#include "src/device/device.hpp"

namespace lockstep {

/// The first index of an operation that is out of bounds; it becomes a UsageError with
/// the caller's line.
struct IndexOutside {
    std::int64_t position;
    std::int64_t index;
};

/// Allocates pinned memory (PinnedMemory) for the host of a real device.
class PinnedPages {
  public:
    virtual ~PinnedPages() = default;
    virtual std::byte* allocate(std::int64_t bytes) = 0;
    virtual void free(std::byte* data) noexcept = 0;
};

/// Makes the host of a real device. The host computes on this machine's processor.
/// `pages` must outlive the host.
using HostFactory = std::function<std::unique_ptr<Device>(
    int index, DeviceMonitor& monitor, PinnedPages& pages)>;

/// A device of this process. It keeps the list of its live storage, and follows every
/// operation's description: it checks operands, makes results, and charges costs. A
/// backend adds memory and arithmetic.
class LocalDevice : public Device {
  public:
    ~LocalDevice() override;

    Tensor empty(Shape shape, DType dtype, SourceLine at = SourceLine::here()) override;
    void upload_into(const Tensor& destination, const HostTensor& values,
                     SourceLine at = SourceLine::here()) override;
    HostTensor download(const Tensor& source,
                        SourceLine at = SourceLine::here()) override;
    HostTensor peek(const Tensor& source, SourceLine at = SourceLine::here()) override;
    Tensor scratch(Shape shape, DType dtype, SourceLine at = {}) override;
    HostTensor transfer_to_host(const Tensor& source, SourceLine at = {}) override;
    void transfer_from_host(const Tensor& destination, const HostTensor& values,
                            SourceLine at = {}) override;
    void perform(OperationRef operation, SourceLine at) final;

  protected:
    using Device::Device;

    /// Computes in the operands' types. Operands are bf16 only if takes_bf16() is true.
    virtual void compute_native(OperationRef operation) = 0;
    /// Returns whether the backend computes the operation directly on bf16. Every backend
    /// does so for moves of bits and casts. A backend may also do so for operations that
    /// are better without f32 copies.
    virtual bool takes_bf16(OperationRef operation) const;

    /// Allocates memory for the storage, whose size is not 0 and which has no memory yet.
    virtual std::byte* do_allocate(const Storage& storage) = 0;
    virtual void do_free(const Storage& storage) noexcept = 0;
    virtual void do_upload(const Tensor& destination, const HostTensor& values) = 0;
    virtual void do_download(HostTensor& values, const Tensor& source) = 0;
    /// Throws IndexOutside for the first index outside [0, bound).
    virtual void check_indices(const Tensor& indices, std::int64_t bound) = 0;

    /// Runs `use`, the backend's part of an operation. A backend whose errors do not say
    /// where they come from overrides this, and adds the operation's name and, if known,
    /// the caller's line.
    virtual void attempt(const char* /*operation*/, SourceLine /*at*/,
                         FunctionRef<void()> use) {
        use();
    }

    /// Frees the data of all live storage and disowns the storage, so that tensors may
    /// outlive their device. A backend's destructor calls this while its memory functions
    /// still exist. The monitor is not told.
    void free_all() noexcept;

  private:
    void do_compute(OperationRef operation, SourceLine at) final;
    void compute_in_own_types(OperationRef operation);
    void allocate_for(Storage& storage, const char* operation, SourceLine at);
    HostTensor values_of(const Tensor& source, const char* operation, SourceLine at);
    void put_values(const Tensor& destination, const HostTensor& values, SourceLine at);
    void compute_in_f32(OperationRef operation, const OperandList& operands);
    template <typename Op>
    void perform(Op& operation, SourceLine at);
    template <typename Op>
    void require_indices(const Op& operation, bool is_empty, SourceLine at);

    void link(Storage& storage) noexcept;
    void unlink(Storage& storage) noexcept;
    void release(Storage& storage) noexcept final;
};

}  // namespace lockstep
