// NCCL has no all-to-all of unequal parts: it is a group of sends and recvs, as in
// PyTorch's all_to_all_single with split sizes. Empty parts are posted too, so that a
// rank that expects something there is found.

#include <numeric>

#include <fmt/format.h>

#include "src/comm/communicator.hpp"
#include "src/core/require.hpp"

namespace lockstep {

namespace {

/// One count a rank, none negative, and together all rows of the tensor.
void require_counts(const char* name, const std::vector<std::int64_t>& counts,
                    const char* tensor_name, const Tensor& tensor, int size,
                    SourceLine at) {
    require(counts.size() == static_cast<std::size_t>(size), at,
            "all_to_all_v: {} has {} counts, expected {}, one a rank", name,
            counts.size(), size);
    std::int64_t rest = tensor.shape()[0];
    for (std::size_t peer = 0; peer < counts.size(); ++peer) {
        require(counts[peer] >= 0, at, "all_to_all_v: {}[{}] is negative: {}", name, peer,
                counts[peer]);
        require(counts[peer] <= rest, at,
                "all_to_all_v: {} add up to more than the {} rows of the {}, at {}[{}]",
                name, tensor.shape()[0], tensor_name, name, peer);
        rest -= counts[peer];
    }
    require(rest == 0, at, "all_to_all_v: {} add up to {}, but the {} has {} rows", name,
            tensor.shape()[0] - rest, tensor_name, tensor.shape()[0]);
}

}  // namespace

void Communicator::add_parts(std::vector<CommOperation>& operations, Verb verb,
                             const Tensor& buffer,
                             const std::vector<std::int64_t>& counts,
                             SourceLine at) const {
    std::int64_t begin = 0;
    for (int peer = 0; peer < size_; ++peer) {
        const std::int64_t count = counts[peer];
        CommOperation& operation = operations.emplace_back();
        fill_message(operation, verb, buffer.rows(begin, count), peer, at);
        operation.all_to_all_v = true;
        begin += count;
    }
}

Work Communicator::all_to_all_v(const Tensor& output,
                                const std::vector<std::int64_t>& recv_counts,
                                const Tensor& input,
                                const std::vector<std::int64_t>& send_counts,
                                SourceLine at) {
    require_no_open_group("all_to_all_v", at);
    require(input && output, at, "all_to_all_v: rank {} passed no {}", rank_,
            input ? "output" : "input");
    for (const Tensor* tensor : {&input, &output})
        require(tensor->shape().dimensions() > 0, at,
                "all_to_all_v: a scalar has no rows to deal out");
    require(!input.overlaps(output), at, "all_to_all_v: input and output share memory");
    require_counts("send_counts", send_counts, "input", input, size_, at);
    require_counts("recv_counts", recv_counts, "output", output, size_, at);
    std::vector<CommOperation> parts;
    parts.reserve(2 * static_cast<std::size_t>(size_));
    add_parts(parts, Verb::send, input, send_counts, at);
    add_parts(parts, Verb::recv, output, recv_counts, at);
    return do_launch(parts, at);
}

}  // namespace lockstep
