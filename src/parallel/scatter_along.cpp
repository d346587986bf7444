#include "src/parallel/scatter_along.hpp"

#include <array>
#include <utility>
#include <vector>

#include "src/comm/chunks.hpp"

namespace lockstep {

Shape with_extent(const Shape& shape, int dimension, std::int64_t extent) {
    std::array<std::int64_t, Shape::kMaxDimensions> extents{};
    for (int i = 0; i < shape.dimensions(); ++i)
        extents[static_cast<std::size_t>(i)] = i == dimension ? extent : shape[i];
    return {extents.data(), shape.dimensions()};
}

namespace {

/// A tensor seen as a matrix: its rows are all dimensions before the scattered dimension.
/// A rank's part is a range of columns.
struct Cut {
    Cut(const DealtTensor& dealt, int parts)
        : whole(dealt.shape), dimension(dealt.dimension), ranks(parts) {
        for (int i = 0; i < whole.dimensions(); ++i)
            if (i != dimension) (i < dimension ? rows : inner) *= whole[i];
    }

    Chunk chunk_of(int rank) const { return chunk(whole[dimension], ranks, rank); }
    Shape part(int rank) const {
        return with_extent(whole, dimension, chunk_of(rank).count);
    }
    /// Views the whole tensor, or a part of it along `dimension`, as such a matrix.
    Tensor matrix(const Tensor& tensor) const {
        return tensor.reshaped({rows, tensor.shape()[dimension] * inner});
    }
    /// Returns the rank's first column and the number of its columns.
    std::pair<std::int64_t, std::int64_t> columns(int rank) const {
        return {chunk_of(rank).begin * inner, chunk_of(rank).count * inner};
    }

    Shape whole;
    int dimension;
    int ranks;
    std::int64_t rows = 1;
    std::int64_t inner = 1;
};

}  // namespace

Tensor scatter_along(Device& device, Communicator& group, const DealtTensor& dealt,
                     const Tensor& whole, int root, SourceLine at) {
    const Cut cut(dealt, group.size());
    if (group.rank() != root) {
        Tensor part = device.empty(cut.part(group.rank()), dealt.dtype, at);
        if (part.elements() > 0) group.recv(part, root, at).wait(at);
        return part;
    }
    std::vector<Tensor> parts;
    for (int rank = 0; rank < group.size(); ++rank) {
        const auto [begin, count] = cut.columns(rank);
        parts.push_back(device.empty(cut.part(rank), dealt.dtype, at));
        device.copy_columns(cut.matrix(parts.back()), 0, cut.matrix(whole), begin, count,
                            at);
    }
    Group messages = group.group(at);
    for (int rank = 0; rank < group.size(); ++rank) {
        const Tensor& part = parts[static_cast<std::size_t>(rank)];
        if (rank != root && part.elements() > 0) messages.send(part, rank, at);
    }
    messages.start(at).wait(at);
    return parts[static_cast<std::size_t>(root)];
}

Tensor gather_along(Device& device, Communicator& group, const DealtTensor& dealt,
                    const Tensor& part, int root, SourceLine at) {
    const Cut cut(dealt, group.size());
    if (group.rank() != root) {
        if (part.elements() > 0) group.send(part, root, at).wait(at);
        return {};
    }
    std::vector<Tensor> parts;
    Group messages = group.group(at);
    for (int rank = 0; rank < group.size(); ++rank) {
        parts.push_back(rank == root ? part
                                     : device.empty(cut.part(rank), dealt.dtype, at));
        if (rank != root && parts.back().elements() > 0)
            messages.recv(parts.back(), rank, at);
    }
    messages.start(at).wait(at);
    Tensor whole = device.empty(dealt.shape, dealt.dtype, at);
    for (int rank = 0; rank < group.size(); ++rank) {
        const auto [begin, count] = cut.columns(rank);
        device.copy_columns(cut.matrix(whole), begin,
                            cut.matrix(parts[static_cast<std::size_t>(rank)]), 0, count,
                            at);
    }
    return whole;
}

}  // namespace lockstep
