#pragma once

#include "src/comm/rank.hpp"

// A ring of n = rank.size() ranks: each may send to the one before it, rank.index() - 1
// modulo n, and receive from the next. The buffer has S elements of any type, any number
// of them; its chunk c is chunk(S, n, c) of src/comm/chunks.hpp.

/// a1.1. Every rank's buffer goes in. On rank r chunk r comes out as the sum over all
/// ranks; the other chunks may hold anything. n - 1 steps. (Patarasuk & Yuan 2009,
/// sections 3 and 4.)
void reduce_scatter(lockstep::Rank& rank, const lockstep::Tensor& buffer);

/// a1.2. Chunk r of rank r's buffer goes in. Every rank's whole buffer comes out: all
/// chunks. n - 1 steps, no arithmetic.
void all_gather(lockstep::Rank& rank, const lockstep::Tensor& buffer);

/// a1.3. Every rank's buffer goes in, the sum over all ranks comes out on every rank.
void all_reduce(lockstep::Rank& rank, const lockstep::Tensor& buffer);
