#pragma once

#include "src/comm/rank.hpp"

// A ring of n = rank.size() ranks. A rank may send only to the previous rank,
// rank.index() - 1 modulo n, and receive from the next. The buffer has S elements (any
// number) of any type. Its chunk c is chunk(S, n, c) of src/comm/chunks.hpp.

/// a1.1. Sums the ranks' buffers. Afterwards chunk r on rank r is the sum over all ranks;
/// other chunks may have any values. Needs n - 1 steps. (Patarasuk & Yuan 2009, sections
/// 3 and 4.)
void reduce_scatter(lockstep::Rank& rank, const lockstep::Tensor& buffer);

/// a1.2. Copies chunk r of rank r's buffer to all ranks. Afterwards every rank's buffer
/// has all chunks. Needs n - 1 steps, no arithmetic.
void all_gather(lockstep::Rank& rank, const lockstep::Tensor& buffer);

/// a1.3. Sums the ranks' buffers. Afterwards each buffer is the sum over all ranks.
void all_reduce(lockstep::Rank& rank, const lockstep::Tensor& buffer);
