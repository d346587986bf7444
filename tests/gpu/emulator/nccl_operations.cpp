#include "tests/gpu/emulator/nccl_calls.hpp"

using namespace emulated;

namespace {

ncclResult_t start(ncclComm_t comm, cudaStream_t stream, const Call& call) {
    return with_ready(comm, [&](const std::shared_ptr<Clique>& clique) {
        if (clique->finalized)
            return nccl_error(ncclInvalidUsage, "the communicator has been finalized");
        return submit(clique, stream, call);
    });
}

Call call(Verb verb, const void* send, void* receive, size_t count, ncclDataType_t type) {
    Call made{verb};
    made.send = static_cast<const char*>(send);
    made.receive = static_cast<char*>(receive);
    made.count = count;
    made.type = type;
    return made;
}

Call with_reduction(Call made, ncclRedOp_t reduction) {
    made.reduction = reduction;
    return made;
}

Call with_peer(Call made, int peer) {
    made.peer = peer;
    return made;
}

}  // namespace

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count,
                           ncclDataType_t type, ncclRedOp_t reduction, ncclComm_t comm,
                           cudaStream_t stream) {
    return start(
        comm, stream,
        with_reduction(call(Verb::all_reduce, send, receive, count, type), reduction));
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t reduction,
                               ncclComm_t comm, cudaStream_t stream) {
    return start(
        comm, stream,
        with_reduction(call(Verb::reduce_scatter, send, receive, receive_count, type),
                       reduction));
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count,
                        ncclDataType_t type, ncclRedOp_t reduction, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    const Call made = call(Verb::reduce, send, receive, count, type);
    return start(comm, stream, with_peer(with_reduction(made, reduction), root));
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t send_count,
                           ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
    return start(comm, stream, call(Verb::all_gather, send, receive, send_count, type));
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return start(comm, stream,
                 with_peer(call(Verb::broadcast, send, receive, count, type), root));
}

ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count,
                          ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
    return start(comm, stream, call(Verb::all_to_all, send, receive, count, type));
}

ncclResult_t ncclGather(const void* send, void* receive, size_t count,
                        ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream) {
    return start(comm, stream,
                 with_peer(call(Verb::gather, send, receive, count, type), root));
}

ncclResult_t ncclScatter(const void* send, void* receive, size_t count,
                         ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream) {
    return start(comm, stream,
                 with_peer(call(Verb::scatter, send, receive, count, type), root));
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return start(comm, stream,
                 with_peer(call(Verb::send, send, nullptr, count, type), peer));
}

ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return start(comm, stream,
                 with_peer(call(Verb::receive, nullptr, receive, count, type), peer));
}
