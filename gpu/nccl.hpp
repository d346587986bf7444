#pragma once

#include <deque>
#include <string>

#include <nccl.h>

#include "gpu/check.hpp"
#include "gpu/watch.hpp"
#include "src/comm/operation.hpp"

namespace lockstep::gpu {

/// ncclInProgress is no failure: a communicator that does not block says so until it has
/// come to the end of a call; see NcclHandle::settle.
void check(ncclResult_t result, const char* call, const char* file, int line);

ncclDataType_t nccl_type(DType dtype);
ncclRedOp_t nccl_operation(Reduction reduction);

/// All NCCL communicators of a process: they are asked for errors, and ended, together.
/// One thread uses it and its handles.
class NcclFamily {
  public:
    explicit NcclFamily(const Watch& watch) : watch_(watch) {}

    const Watch& watch() const { return watch_; }
    /// Throws RunStopped where the run has been stopped, GpuError where NCCL has failed.
    void check() const;
    /// Ends what all of them run on the GPU. Together, since one by one each would wait
    /// for the kernels of the others.
    void abort() noexcept;
    bool aborted() const { return aborted_; }

  private:
    friend class NcclHandle;

    /// Where NCCL writes a communicator, from a thread of its own and maybe after whoever
    /// asked for it has given up: it lives as long as the family.
    struct Slot {
        ncclComm_t comm = nullptr;
    };
    Slot& add() { return slots_.emplace_back(); }

    Watch watch_;
    std::deque<Slot> slots_;
    bool aborted_ = false;
};

/// An NCCL communicator that does not block: the host asks whether its calls are done, so
/// that it can give up when another process says so.
class NcclHandle {
  public:
    /// All processes of the communicator make theirs at the same time.
    static NcclHandle make(NcclFamily& family, const ncclUniqueId& id, int rank,
                           int size);

    NcclHandle() = default;
    NcclHandle(NcclHandle&& other) noexcept;
    NcclHandle& operator=(NcclHandle&& other) noexcept;
    /// Ends it together with the other processes; where that cannot be, all of the family
    /// ends.
    ~NcclHandle();

    explicit operator bool() const { return slot_ != nullptr && slot_->comm != nullptr; }
    ncclComm_t get() const { return slot_->comm; }

    /// What a call has to do before it is done. To meet other processes for the first
    /// time takes seconds, in which nothing else moves: that is no stall.
    enum class Call : bool { known, first };

    /// Waits until the last call is done. Throws as NcclFamily::check.
    void settle(Call call = Call::known) const;
    /// The part of the ranks that pass the same colour, in the order of (key, rank); none
    /// for a negative colour.
    NcclHandle split(int color, int key) const;

  private:
    explicit NcclHandle(NcclFamily& family) : family_(&family), slot_(&family.add()) {}
    void close() noexcept;

    NcclFamily* family_ = nullptr;
    NcclFamily::Slot* slot_ = nullptr;
};

/// Operations that progress together. A group that an exception leaves is ended too, or
/// later calls would only be queued.
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

/// The version of the library that was loaded: 22809 is 2.28.9.
int nccl_version();
/// "2.28.9"
std::string nccl_version_text(int version);

}  // namespace lockstep::gpu
