#pragma once

#include <string>
#include <vector>

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

/// An NCCL communicator that does not block: the host asks whether its calls are done, so
/// that it can give up when another process says so. One thread uses it.
class NcclHandle {
  public:
    /// All processes of the communicator make theirs at the same time.
    static NcclHandle make(const ncclUniqueId& id, int rank, int size,
                           const Watch& watch);

    NcclHandle(ncclComm_t comm, const Watch& watch) : comm_(comm), watch_(watch) {}
    NcclHandle(NcclHandle&& other) noexcept;
    NcclHandle& operator=(NcclHandle&& other) noexcept;
    /// Ends it together with the other processes, or by itself where the run has been
    /// stopped: then what of it still runs on the GPU ends too.
    ~NcclHandle();

    explicit operator bool() const { return comm_ != nullptr; }
    ncclComm_t get() const { return comm_; }

    /// Waits until the last call is done. Throws RunStopped, or GpuError where NCCL has
    /// failed.
    void settle() const;
    /// The part of the ranks that pass the same colour, in the order of (key, rank); none
    /// for a negative colour.
    NcclHandle split(int color, int key) const;
    /// Ends what of it runs on the GPU; nothing can be done with it then.
    void abort() noexcept;

  private:
    void close() noexcept;

    ncclComm_t comm_ = nullptr;
    Watch watch_;
};

/// The version of the library that was loaded: 22809 is 2.28.9.
int nccl_version();
/// "2.28.9"
std::string nccl_version_text(int version);

}  // namespace lockstep::gpu
