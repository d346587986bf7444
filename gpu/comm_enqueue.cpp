// What NCCL is asked for each verb.

#include "gpu/comm.hpp"

namespace lockstep::gpu {

/// NCCL's all-to-all wants two buffers; ours may be one.
void Comm::set_aside(CommOperation& operation) {
    if (operation.verb != Verb::all_to_all || operation.count == 0 ||
        !operation.input.overlaps(operation.output))
        return;
    const Tensor aside =
        run_.device.scratch(operation.input.shape(), operation.input.dtype());
    run_.device.transfer(aside, operation.input);
    operation.input = aside;
}

void Comm::enqueue(const CommOperation& operation) {
    const void* input = operation.input.bytes_begin();
    void* output = operation.output.bytes_begin();
    const auto count = static_cast<std::size_t>(operation.count);
    const ncclDataType_t type = nccl_type(operation.dtype);
    const ncclRedOp_t reduction = nccl_operation(operation.reduction);
    const ncclComm_t comm = nccl();
    const cudaStream_t stream = this->stream();
    if (operation.verb == Verb::barrier) return enqueue_barrier();
    if (count == 0) return;
    switch (operation.verb) {
        case Verb::all_reduce:
            GPU_CHECK(ncclAllReduce(input, output, count, type, reduction, comm, stream));
            return;
        case Verb::all_gather:
            GPU_CHECK(ncclAllGather(input, output, count, type, comm, stream));
            return;
        case Verb::reduce_scatter:
            GPU_CHECK(
                ncclReduceScatter(input, output, count, type, reduction, comm, stream));
            return;
        case Verb::broadcast:
            GPU_CHECK(
                ncclBroadcast(input, output, count, type, operation.peer, comm, stream));
            return;
        case Verb::reduce:
            GPU_CHECK(ncclReduce(input, output, count, type, reduction, operation.peer,
                                 comm, stream));
            return;
        case Verb::gather:
            return enqueue_gather(operation);
        case Verb::scatter:
            return enqueue_scatter(operation);
        case Verb::all_to_all:
            return enqueue_all_to_all(operation);
        case Verb::send:
            GPU_CHECK(ncclSend(input, count, type, operation.peer, comm, stream));
            return;
        case Verb::recv:
            GPU_CHECK(ncclRecv(output, count, type, operation.peer, comm, stream));
            return;
        case Verb::barrier:
        case Verb::split:
            return;
    }
}

/// Values do not matter: that all have come does.
void Comm::enqueue_barrier() {
    GPU_CHECK(ncclAllReduce(channel_.token.bytes_begin(), channel_.token.bytes_begin(), 1,
                            ncclInt32, ncclMax, nccl(), stream()));
}

// The collectives that deal out blocks: calls of NCCL's since 2.28; before, messages of
// one group do the same.

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)

void Comm::enqueue_all_to_all(const CommOperation& operation) {
    GPU_CHECK(ncclAlltoAll(operation.input.bytes_begin(), operation.output.bytes_begin(),
                           static_cast<std::size_t>(operation.count),
                           nccl_type(operation.dtype), nccl(), stream()));
}

void Comm::enqueue_gather(const CommOperation& operation) {
    GPU_CHECK(ncclGather(operation.input.bytes_begin(), operation.output.bytes_begin(),
                         static_cast<std::size_t>(operation.count),
                         nccl_type(operation.dtype), operation.peer, nccl(), stream()));
}

void Comm::enqueue_scatter(const CommOperation& operation) {
    GPU_CHECK(ncclScatter(operation.input.bytes_begin(), operation.output.bytes_begin(),
                          static_cast<std::size_t>(operation.count),
                          nccl_type(operation.dtype), operation.peer, nccl(), stream()));
}

#else

void Comm::enqueue_message(Verb verb, const Tensor& buffer, std::int64_t begin,
                           std::int64_t count, int peer) {
    const Tensor block = buffer.slice(begin, count);
    if (verb == Verb::send)
        GPU_CHECK(ncclSend(block.bytes_begin(), static_cast<std::size_t>(count),
                           nccl_type(block.dtype()), peer, nccl(), stream()));
    else
        GPU_CHECK(ncclRecv(block.bytes_begin(), static_cast<std::size_t>(count),
                           nccl_type(block.dtype()), peer, nccl(), stream()));
}

void Comm::enqueue_all_to_all(const CommOperation& operation) {
    for (int peer = 0; peer < size(); ++peer) {
        const std::int64_t begin = peer * operation.count;
        enqueue_message(Verb::send, operation.input, begin, operation.count, peer);
        enqueue_message(Verb::recv, operation.output, begin, operation.count, peer);
    }
}

void Comm::enqueue_gather(const CommOperation& operation) {
    enqueue_message(Verb::send, operation.input, 0, operation.count, operation.peer);
    if (rank() != operation.peer) return;
    for (int peer = 0; peer < size(); ++peer)
        enqueue_message(Verb::recv, operation.output, peer * operation.count,
                        operation.count, peer);
}

void Comm::enqueue_scatter(const CommOperation& operation) {
    enqueue_message(Verb::recv, operation.output, 0, operation.count, operation.peer);
    if (rank() != operation.peer) return;
    for (int peer = 0; peer < size(); ++peer)
        enqueue_message(Verb::send, operation.input, peer * operation.count,
                        operation.count, peer);
}

#endif

}  // namespace lockstep::gpu
