#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/attention.hpp"

namespace lockstep::gpu {

/// Says where the tokens of rows lie on pages, in the GPU's memory.
struct PagedRows {
    const std::int32_t* rows;   ///< two a row: its token, and the first of its pages …
    const std::int32_t* pages;  ///< … among these
    std::int64_t count;
    std::int64_t of_page;  ///< rows of a page
};

/// Copies columns [from, from + columns) of each row of source, `pitch` elements apart,
/// to its token's place on pages whose rows have so many columns.
void launch_store_pages(cudaStream_t stream, Numbers pages, Numbers source,
                        const PagedRows& rows, std::int64_t columns, std::int64_t pitch,
                        std::int64_t from);

/// Queries and y have a row for each of `rows`. Keys and values are heads of pages: a
/// page's rows are `batch` apart.
struct PagedOperands {
    HeadRows y, queries, keys, values;
    std::int64_t batches;  ///< of queries and y
    std::int64_t heads;    ///< of queries
    std::int64_t group;    ///< of them for each head of keys and values
    int width;             ///< of queries and keys, up to kMostPagedWidth
    int value_width;       ///< likewise
    double factor;
    HeadRows turned_queries, turned_keys;  ///< of a second term of scores
    int turned_width;                      ///< 0: there is none; up to kMostTurnedWidth
};

inline constexpr int kMostPagedWidth = 1024;
inline constexpr int kMostTurnedWidth = 128;

/// A warp has one head of one row, and goes through the keys of its sequence in order. So
/// the bits depend on that sequence alone.
void launch_attend_pages(cudaStream_t stream, const PagedOperands& of,
                         const PagedRows& rows);

}  // namespace lockstep::gpu
