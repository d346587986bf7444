// The part of NCCL 2.28 that gpu/ uses, emulated between processes of this machine (see
// cuda_runtime.h). Messages are plain bytes through sockets, without any description. If
// the calls of ranks do not match, ranks hang or get wrong data, as with NCCL. Every
// operation sends whole buffers to the ranks that need them; these add up the buffers in
// the order of ranks, so all ranks get the same bits.
//
// Some rules of NCCL that programs often forget:
// - A nonblocking communicator answers ncclInProgress to every call that takes time, also
//   to operations. Until ncclCommGetAsyncError says otherwise, the operation may not be
//   in its stream yet, the result of ncclCommSplit is missing, and other calls on the
//   communicator fail with ncclInvalidArgument.
// - If an operation's peer is lost, the operation never ends. The communicator's error
//   becomes ncclRemoteError, and the stream continues when ncclCommAbort is called.
// - Operations of one communicator run in the order of their calls, on any streams. All
//   operations of a group progress together.
// - Two ranks on one GPU of one host are refused. NCCL_HOSTID names the host; if it is
//   not set, gethostname() names it.
//
// Two mistakes end the process: two threads are inside one communicator at once, or a
// buffer crosses the end of the allocation in which it begins.
#pragma once

#include <climits>
#include <cstddef>

#include "cuda_runtime.h"

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_VERSION(x, y, z) ((x)*10000 + (y)*100 + (z))
#define NCCL_VERSION_CODE NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)

#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR nullptr
#define NCCL_SPLIT_NOCOLOR (-1)

using ncclComm_t = struct ncclComm*;

struct ncclUniqueId {
    char internal[NCCL_UNIQUE_ID_BYTES];
};

enum ncclResult_t {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclNumResults = 8
};

enum ncclRedOp_t {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5
};

enum ncclDataType_t {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
};

struct ncclConfig_t {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char* netName;
    int splitShare;
    int trafficClass;
    const char* commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
};

#define NCCL_CONFIG_INITIALIZER                                                     \
    {                                                                               \
        sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT, \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,    \
            NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,    \
            NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,    \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,    \
            NCCL_CONFIG_UNDEF_INT                                                   \
    }

extern "C" {

ncclResult_t ncclGetVersion(int* version);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);

ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id,
                                    int rank, ncclConfig_t* config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count,
                           ncclDataType_t type, ncclRedOp_t reduction, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t reduction,
                               ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduce(const void* send, void* receive, size_t count,
                        ncclDataType_t type, ncclRedOp_t reduction, int root,
                        ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* send, void* receive, size_t send_count,
                           ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count,
                          ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGather(const void* send, void* receive, size_t count,
                        ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream);
ncclResult_t ncclScatter(const void* send, void* receive, size_t count,
                         ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream);
ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);

}  // extern "C"
