#pragma once

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
    /// Returns where element (0, 0) of head `head` of batch `batch` lies, in elements.
    std::int64_t offset(std::int64_t batch, std::int64_t head) const {
        return batch * columns() + first + head * width;
    }
    /// From a row of a head to its next, in elements.
    std::int64_t pitch() const { return batches() * columns(); }
    /// Returns whether both may have elements in common. They have none in different
    /// memory, nor if their rows are equally long and their columns differ.
    bool meets(const Heads& other) const {
        if (!tensor.overlaps(other.tensor)) return false;
        if (columns() != other.columns()) return true;
        const auto begin = [](const Heads& of) {
            return of.tensor.offset_bytes() / bytes_of(of.tensor.dtype()) + of.first;
        };
        // A tensor may begin anywhere, so columns may go on at the next row's begin.
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

/// The three that attention works on, or their gradients. Where there are fewer heads of
/// keys and values, g, than of queries, a, each serves a/g of these, side by side
/// (grouped-query attention: Ainslie et al. 2023, 2305.13245).
struct AttentionHeads {
    Heads queries;  ///< m rows, a heads
    Heads keys;     ///< n rows, g heads
    Heads values;   ///< n rows, g heads

    std::int64_t group() const { return queries.heads / keys.heads; }
};

/// Columns of queries and keys that turn with positions, beside those that do not.
struct TurnedHeads {
    Heads queries;
    Heads keys;
};

/// A norm gives this.
struct Normalized {
    Tensor y;     ///< (rows, columns)
    Tensor mean;  ///< (rows)
    Tensor rstd;  ///< (rows), 1 / sqrt(variance + epsilon)
};

/// What batch norm has seen of all batches so far; see Device::batch_moments.
struct RunningMoments {
    Tensor mean;      ///< (columns)
    Tensor variance;  ///< (columns), unbiased
    double momentum = 0.1;
};

/// What attention has come to after the keys it has seen so far, by an online softmax
/// (Milakov & Gimelshein 2018, 1805.02867, section 3).
struct OnlineAttention {
    Tensor y;        ///< (m, b, a width): the sum of values times exp(score - maximum)
    Tensor maximum;  ///< (b, a, m): of the scores; -infinity before the first
    Tensor sum;      ///< (b, a, m): of exp(score - maximum)
};

/// Attention's backward starts from this and the heads themselves.
struct AttentionBackward {
    Tensor dy;           ///< (m, b, a width)
    Tensor log_sum_exp;  ///< (b, a, m), from finish_attention
    Tensor dy_y;  ///< (b, a, m): the product of dy and y, row by row; the papers' D
};

}  // namespace lockstep
