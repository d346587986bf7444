#pragma once

#include "lessons/grader/remote/rank_line.hpp"
#include "src/device/device.hpp"

namespace lockstep::lessons {

/// Tells the grader when phases begin and end. It sends nothing else, because the
/// grader's device has a monitor of its own.
class RemoteMonitor final : public DeviceMonitor {
  public:
    explicit RemoteMonitor(RankLine& line) : line_(line) {}

    void execute(const DeviceOperation&, FunctionRef<void()>) override {}
    void copy(CopyDirection, const Tensor&, SourceLine, FunctionRef<void()>) override {}
    void allocated(const Storage&) override {}
    void freed(const Storage&) noexcept override {}
    void phase_began(Phase phase, int micro_batch, SourceLine at) override {
        line_.tell(RankRequest::phase_began, phase, micro_batch, at);
    }
    void phase_ended() noexcept override { line_.tell(RankRequest::phase_ended); }
    bool has_numbers() const override { return true; }

  private:
    RankLine& line_;
};

/// A rank's device in the process of the rank. It sends each operation to the grader. The
/// grader's real device checks, charges and computes. So this process does no arithmetic
/// and holds no device memory.
class RemoteDevice final : public Device {
  public:
    RemoteDevice(int index, RankLine& line)
        : Device(index, monitor_), line_(line), monitor_(line) {
        line.set_device(*this);
        set_no_host("graded programs compute on the device; there is no host");
    }

    RankLine& line() { return line_; }

    Tensor empty(Shape shape, DType dtype, SourceLine at) override;
    void upload_into(const Tensor& destination, const HostTensor& values,
                     SourceLine at) override;
    HostTensor download(const Tensor& source, SourceLine at) override;
    HostTensor peek(const Tensor& source, SourceLine at) override;
    void perform(OperationRef operation, SourceLine at) override;

    Tensor scratch(Shape shape, DType dtype, SourceLine at) override;
    HostTensor transfer_to_host(const Tensor& source, SourceLine at) override;
    void transfer_from_host(const Tensor& destination, const HostTensor& values,
                            SourceLine at) override;

  private:
    void do_compute(OperationRef operation, SourceLine at) override;
    void release(Storage& storage) noexcept override { line_.forget(storage); }

    RankLine& line_;
    RemoteMonitor monitor_;
};

}  // namespace lockstep::lessons
