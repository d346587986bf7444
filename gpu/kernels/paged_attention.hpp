#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/attention.hpp"

namespace lockstep::gpu {

/// The places of rows' tokens on pages. Both arrays are in the GPU's memory.
struct PagedRows {
    const std::int32_t* rows;  ///< two numbers per row: its token, and its first page …
    const std::int32_t* pages;  ///< … as an index into these pages
    std::int64_t count;
    std::int64_t of_page;  ///< number of rows of a page
};

/// Copies columns [from, from + columns) of each source row to its token's place on the
/// pages. Source rows are `pitch` elements apart; page rows have `columns` columns.
void launch_store_pages(cudaStream_t stream, Numbers pages, Numbers source,
                        const PagedRows& rows, std::int64_t columns, std::int64_t pitch,
                        std::int64_t from);

/// Queries and y have one row for each row of the PagedRows. Keys and values are heads of
/// pages; their `batch` is the distance between the rows of a page.
struct PagedOperands {
    HeadRows y, queries, keys, values;
    std::int64_t batches;  ///< number of batches of queries and y
    std::int64_t heads;    ///< number of heads of queries
    std::int64_t group;    ///< query heads per head of keys and values
    int width;             ///< columns of queries and keys, up to kMostPagedWidth
    int value_width;       ///< up to kMostPagedWidth
    double factor;
    HeadRows turned_queries, turned_keys;  ///< for a second term of scores
    int turned_width;                      ///< up to kMostTurnedWidth; 0 for none
};

inline constexpr int kMostPagedWidth = 1024;
inline constexpr int kMostTurnedWidth = 128;

/// One warp computes one head of one row, and goes through the keys of the row's sequence
/// in order. So the result's bits depend only on this sequence.
void launch_attend_pages(cudaStream_t stream, const PagedOperands& operands,
                         const PagedRows& rows);

}  // namespace lockstep::gpu
