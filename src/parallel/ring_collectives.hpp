#pragma once

#include "src/comm/communicator.hpp"
#include "src/core/tensor.hpp"
#include "src/device/device.hpp"

namespace lockstep {

// Collectives written by hand with send and recv, as in a course. The ring algorithm is
// from Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", 2009. n is the ring's size, and S is the buffer's bytes. Buffers and
// rings may have any size: chunks differ by at most one element (chunk()).

/// Sums chunk r of all ranks' buffers on rank r; the other chunks then have partial sums.
/// Needs n - 1 steps. Each rank sends S bytes minus its own chunk.
void ring_reduce_scatter(Device& device, Communicator& ring, const Tensor& buffer);

/// Copies chunk r of rank r's buffer to all ranks, so that every rank has the whole
/// buffer. Needs n - 1 steps. Each rank sends S bytes minus one chunk.
void ring_all_gather(Communicator& ring, const Tensor& buffer);

/// Sums the buffer over all ranks, on every rank: a reduce-scatter, then an all-gather.
/// Needs 2(n - 1) steps. Each rank sends 2(n - 1)/n S bytes.
void ring_all_reduce(Device& device, Communicator& ring, const Tensor& buffer);

/// Computes the same sum by exchanging whole buffers with ranks at distances 1, 2, 4, …:
/// lg n steps of S bytes. If n is not a power of two, each surplus rank first sends its
/// buffer to a partner. The partner adds the buffer and returns the result at the end.
/// See Thakur, Rabenseifner & Gropp 2005, section 4.4.
void recursive_doubling_all_reduce(Device& device, Communicator& group,
                                   const Tensor& buffer);

}  // namespace lockstep
