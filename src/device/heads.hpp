#pragma once

#include <algorithm>
#include <cstdint>

#include "src/core/tensor.hpp"

namespace lockstep {

/// Attention's heads: columns [first, first + heads * width) of a tensor (s, batches,
/// columns), seen as batches * heads matrices (s, width). No copy.
struct Heads {
    Tensor tensor;
    std::int64_t heads = 1;
    std::int64_t width = 0;
    std::int64_t first = 0;

    std::int64_t rows() const { return tensor.shape()[0]; }
    std::int64_t batches() const { return tensor.shape()[1]; }
    std::int64_t columns() const { return tensor.shape()[2]; }
    /// Returns the offset of element (0, 0) of head `head` of batch `batch`, in elements.
    std::int64_t offset(std::int64_t batch, std::int64_t head) const {
        return batch * columns() + first + head * width;
    }
    /// Returns the distance from a row of a head to the next, in elements.
    std::int64_t pitch() const { return batches() * columns(); }
    /// Returns whether these heads and `other` may share elements. They share none if the
    /// tensors do not overlap, or if rows are equally long and no column belongs to both.
    bool meets(const Heads& other) const {
        if (!tensor.overlaps(other.tensor)) return false;
        if (columns() != other.columns()) return true;
        const auto begin = [](const Heads& operand) {
            return operand.tensor.offset_bytes() / bytes_of(operand.tensor.dtype()) +
                   operand.first;
        };
        // A tensor may begin in the middle of a row, so columns may continue in the next
        // row.
        const std::int64_t off = (begin(other) - begin(*this)) % columns();
        const std::int64_t behind = off < 0 ? off + columns() : off;
        return behind < heads * width || columns() - behind < other.heads * other.width;
    }
};

/// Returns a matrix (rows, columns) as the rows of one head.
inline Heads one_head(const Tensor& matrix) {
    const Shape& shape = matrix.shape();
    return {matrix.reshaped({shape.matrix_rows(), 1, shape.columns()}), 1,
            shape.columns()};
}

/// The queries, keys and values of attention, or their gradients. If keys and values have
/// g heads and queries have more, a, each head of keys and values serves a/g adjacent
/// heads of queries (grouped-query attention: Ainslie et al. 2023, 2305.13245).
struct AttentionHeads {
    Heads queries;  ///< m rows, a heads
    Heads keys;     ///< n rows, g heads
    Heads values;   ///< n rows, g heads

    std::int64_t group() const { return queries.heads / keys.heads; }
};

/// Returns the least extent of the products of one head.
inline std::int64_t least_extent(const AttentionHeads& heads) {
    return std::min({heads.queries.rows(), heads.keys.rows(), heads.queries.width});
}

/// The columns of queries and keys that turn with positions; other columns do not turn.
struct TurnedHeads {
    Heads queries;
    Heads keys;
};

/// The result of a norm.
struct Normalized {
    Tensor y;     ///< (rows, columns)
    Tensor mean;  ///< (rows)
    Tensor rstd;  ///< (rows), 1 / sqrt(variance + epsilon)
};

/// Statistics of all batches that batch norm has seen so far; see Device::batch_moments.
struct RunningMoments {
    Tensor mean;      ///< (columns)
    Tensor variance;  ///< (columns), unbiased
    double momentum = 0.1;
};

/// The state of attention after the keys that it has seen so far: an online softmax
/// (Milakov & Gimelshein 2018, 1805.02867, section 3).
struct OnlineAttention {
    Tensor y;        ///< (m, b, a width): the sum of values times exp(score - maximum)
    Tensor maximum;  ///< (b, a, m): the scores' maximum; -infinity before the first key
    Tensor sum;      ///< (b, a, m): the sum of exp(score - maximum)
};

/// The inputs of attention's backward, in addition to the heads.
struct AttentionBackward {
    Tensor dy;           ///< (m, b, a width)
    Tensor log_sum_exp;  ///< (b, a, m), from finish_attention
    Tensor dy_y;  ///< (b, a, m): the sum of dy y over each row of a head; the papers' D
};

}  // namespace lockstep
