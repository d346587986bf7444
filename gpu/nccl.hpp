#pragma once

#include <deque>
#include <string>

#include <nccl.h>

#include "gpu/check.hpp"
#include "gpu/watch.hpp"
#include "src/comm/operation.hpp"

namespace lockstep::gpu {

/// Throws if an NCCL call failed. ncclInProgress is not a failure: a nonblocking
/// communicator returns it until a call is done; see NcclHandle::settle.
void check(ncclResult_t result, const char* call, const char* file, int line);

ncclDataType_t nccl_type(DType dtype);
ncclRedOp_t nccl_operation(Reduction reduction);

/// All NCCL communicators of a process. They are checked for errors, and aborted,
/// together. Only one thread uses the family and its handles.
class NcclFamily {
  public:
    explicit NcclFamily(const Watch& watch) : watch_(watch) {}

    const Watch& watch() const { return watch_; }
    /// Throws RunStopped if the run has been stopped, GpuError if NCCL has failed.
    void check() const;
    /// Aborts all communicators at once: aborting one alone would wait for the kernels of
    /// the others.
    void abort() noexcept;
    bool aborted() const { return aborted_; }

  private:
    friend class NcclHandle;

    /// NCCL's own thread writes a communicator here, possibly after the caller has given
    /// up. So a slot lives as long as the family.
    struct Slot {
        ncclComm_t comm = nullptr;
    };
    Slot& add() { return slots_.emplace_back(); }

    Watch watch_;
    std::deque<Slot> slots_;
    bool aborted_ = false;
};

/// A nonblocking NCCL communicator: the host polls whether its calls are done, so that
/// the host can stop waiting if another process has failed.
class NcclHandle {
  public:
    /// All processes of the communicator make their handles at the same time.
    static NcclHandle make(NcclFamily& family, const ncclUniqueId& id, int rank,
                           int size);

    NcclHandle() = default;
    NcclHandle(NcclHandle&& other) noexcept;
    NcclHandle& operator=(NcclHandle&& other) noexcept;
    /// Destroys the communicator together with the other processes. If that fails, aborts
    /// the whole family.
    ~NcclHandle();

    explicit operator bool() const { return slot_ != nullptr && slot_->comm != nullptr; }
    ncclComm_t get() const { return slot_->comm; }

    /// Kinds of calls: a `first` call may have to connect to other processes. Connecting
    /// takes seconds without visible progress, but is not a stall.
    enum class Call : bool { known, first };

    /// Waits until the last call is done. Throws as NcclFamily::check.
    void settle(Call call = Call::known) const;
    /// Returns the communicator of the ranks with the same colour, ordered by (key,
    /// rank); an empty handle for a negative colour.
    NcclHandle split(int color, int key) const;

  private:
    explicit NcclHandle(NcclFamily& family) : family_(&family), slot_(&family.add()) {}
    void close() noexcept;

    NcclFamily* family_ = nullptr;
    NcclFamily::Slot* slot_ = nullptr;
};

/// NCCL calls that start together. The destructor ends the group after an exception, too:
/// otherwise NCCL would only queue all later calls.
class NcclGroup {
  public:
    NcclGroup() { GPU_CHECK(ncclGroupStart()); }
    ~NcclGroup() {
        if (open_) ncclGroupEnd();
    }
    NcclGroup(const NcclGroup&) = delete;
    NcclGroup& operator=(const NcclGroup&) = delete;

    void end() {
        open_ = false;
        GPU_CHECK(ncclGroupEnd());
    }

  private:
    bool open_ = true;
};

/// The version of the loaded library: 22809 is 2.28.9.
int nccl_version();
/// "2.28.9"
std::string nccl_version_text(int version);

}  // namespace lockstep::gpu
