#pragma once

#include "src/comm/communicator.hpp"
#include "src/core/tensor.hpp"
#include "src/device/device.hpp"

namespace lockstep {

// Collectives written by hand, in send and recv, as a course would have them. The ring is
// that of Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", 2009. n is the ring's size, S the buffer's bytes. Buffers of any size
// and rings of any length work: the buffer is dealt out by chunk(), so that chunks differ
// by one element at most.

/// Every rank's buffer goes in; chunk r of rank r's buffer comes out summed
/// over all ranks, and the other chunks hold partial sums. n - 1 steps;
/// each rank sends S less its own chunk.
void ring_reduce_scatter(Device& device, Communicator& ring, const Tensor& buffer);

/// Chunk r of rank r's buffer goes in; the whole buffer comes out on every
/// rank. n - 1 steps; each rank sends S less one chunk.
void ring_all_gather(Communicator& ring, const Tensor& buffer);

/// The sum over all ranks on every rank: the one, then the other. 2(n - 1)
/// steps, 2(n - 1)/n S.
void ring_all_reduce(Device& device, Communicator& ring, const Tensor& buffer);

/// Makes the same sum by exchanging whole buffers with ranks 1, 2, 4, …
/// away: lg n steps of S bytes. If n is no power of two, the surplus ranks
/// first add theirs to a neighbour's, and are sent the result at the end.
/// Thakur, Rabenseifner & Gropp 2005, section 4.4.
void recursive_doubling_all_reduce(Device& device, Communicator& group,
                                   const Tensor& buffer);

}  // namespace lockstep
