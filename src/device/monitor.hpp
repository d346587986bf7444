#pragma once

#include <cstdint>
#include <span>

#include "src/core/function_ref.hpp"
#include "src/core/require.hpp"
#include "src/core/source_line.hpp"
#include "src/core/tensor.hpp"
#include "src/device/operations.hpp"
#include "src/device/work.hpp"

namespace lockstep {

/// A part of a training step; see PhaseScope.
enum class Phase : std::uint8_t {
    none,
    forward,
    backward,
    backward_input,
    backward_weight,
    update
};

constexpr const char* name_of(Phase phase) {
    constexpr const char* kNames[] = {
        "", "forward", "backward", "backward-input", "backward-weight", "update"};
    return kNames[static_cast<int>(phase)];
}

/// One operation of a device as the rest of the program sees it: its name, its cost, the
/// tensors that it reads and writes (an operand that is updated in place is in both
/// lists), and the caller's line.
struct DeviceOperation {
    OperationKind kind;
    const char* name;
    std::int64_t flops;   ///< floating point operations; a multiply-add is two
    std::int64_t extent;  ///< of products, the least extent; 0 for other operations
    std::int64_t bytes;   ///< bytes read from and written to device memory
    DType dtype;
    std::span<const Tensor* const> reads;
    std::span<const Tensor* const> writes;
    SourceLine at;
    const Derivation& derivation;  ///< what the results are made of

    template <typename Op>
    bool is() const {
        return kind == kKindOf<Op>;
    }
};

/// The direction of a copy between device and host.
enum class CopyDirection : std::uint8_t { to_device, to_host };

/// A device reports to its monitor, which decides when arithmetic runs. The simulator's
/// monitor has a virtual clock, a ledger and a checker. The GPU backend's monitor has a
/// ledger and events.
class DeviceMonitor {
  public:
    virtual ~DeviceMonitor() = default;

    /// Charges the operation. Runs its arithmetic, `numbers`, when its inputs have been
    /// computed. If the run computes shapes only, `numbers` does not run.
    virtual void execute(const DeviceOperation& operation,
                         FunctionRef<void()> numbers) = 0;

    /// Charges a copy between host and device, and runs `move`, which makes the copy. The
    /// copy waits for everything issued before it.
    virtual void copy(CopyDirection direction, const Tensor& tensor, SourceLine at,
                      FunctionRef<void()> move) = 0;

    /// Starts a copy between the device and its host, as Device::start_copy describes.
    virtual Work start_copy(CopyDirection /*direction*/, const Tensor& /*destination*/,
                            const Tensor& /*source*/, SourceLine at) {
        throw UsageError("start_copy: this backend has no host to copy from or to", at);
    }

    /// Called when a tensor is read for a record, which costs nothing.
    virtual void peeked(const Tensor& /*tensor*/, SourceLine /*at*/) {}

    /// allocated() is called with a new storage, the first of Device::live(); it may
    /// throw to refuse it. Otherwise freed() is called just before the storage is freed.
    virtual void allocated(const Storage& storage) = 0;
    virtual void freed(const Storage& storage) noexcept = 0;

    /// Returns the device's current moment of training.
    virtual Moment moment() const { return {}; }

    /// Returns the time of the program: virtual time, or the time since a real device was
    /// made. Everything that the program has waited for is done by then.
    virtual Picoseconds now() const { return moment().time; }
    /// The program waits until that time, unless that time has passed.
    virtual void sleep_until(Picoseconds /*time*/, SourceLine at) {
        throw UsageError("sleep_until: this backend keeps no time", at);
    }

    /// Called when a phase of the training step has begun, or has ended.
    virtual void phase_began(Phase phase, int micro_batch, SourceLine at) = 0;
    virtual void phase_ended() noexcept = 0;

    /// False if the run computes shapes only.
    virtual bool has_numbers() const = 0;
};

}  // namespace lockstep
