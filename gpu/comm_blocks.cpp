// The collectives that deal out blocks: calls of NCCL's since 2.28; before, messages of
// one group do the same.

#include "gpu/comm.hpp"

namespace lockstep::gpu {

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)

void Comm::enqueue_all_to_all(const CommOperation& operation) {
    GPU_CHECK(ncclAlltoAll(operation.input.bytes_begin(), operation.output.bytes_begin(),
                           static_cast<std::size_t>(operation.count),
                           nccl_type(operation.dtype), handle().get(), stream_.get()));
}

void Comm::enqueue_gather(const CommOperation& operation) {
    GPU_CHECK(ncclGather(operation.input.bytes_begin(), operation.output.bytes_begin(),
                         static_cast<std::size_t>(operation.count),
                         nccl_type(operation.dtype), operation.peer, handle().get(),
                         stream_.get()));
}

void Comm::enqueue_scatter(const CommOperation& operation) {
    GPU_CHECK(ncclScatter(operation.input.bytes_begin(), operation.output.bytes_begin(),
                          static_cast<std::size_t>(operation.count),
                          nccl_type(operation.dtype), operation.peer, handle().get(),
                          stream_.get()));
}

#else

void Comm::enqueue_message(Verb verb, const Tensor& buffer, std::int64_t begin,
                           std::int64_t count, int peer) {
    const Tensor block = buffer.slice(begin, count);
    if (verb == Verb::send)
        GPU_CHECK(ncclSend(block.bytes_begin(), static_cast<std::size_t>(count),
                           nccl_type(block.dtype()), peer, handle().get(),
                           stream_.get()));
    else
        GPU_CHECK(ncclRecv(block.bytes_begin(), static_cast<std::size_t>(count),
                           nccl_type(block.dtype()), peer, handle().get(),
                           stream_.get()));
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
