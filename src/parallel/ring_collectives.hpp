#pragma once

#include "src/comm/communicator.hpp"
#include "src/core/tensor.hpp"
#include "src/device/device.hpp"

namespace lockstep {

// Collectives written by hand with send and recv, as in a course. The ring is that of
// Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", 2009. n is the ring's size, S the buffer's bytes. Buffers and rings of
// any size work: chunk() cuts the buffer, so chunks differ by one element at most.

/// Sums chunk r of all ranks' buffers on rank r; the other chunks then have partial sums.
/// n - 1 steps; each rank sends S without its own chunk.
void ring_reduce_scatter(Device& device, Communicator& ring, const Tensor& buffer);

/// Copies chunk r of rank r's buffer to all ranks, so that every rank has the whole
/// buffer. n - 1 steps; each rank sends S without one chunk.
void ring_all_gather(Communicator& ring, const Tensor& buffer);

/// Sums the buffer over all ranks, on every rank: a reduce-scatter, then an all-gather.
/// 2(n - 1) steps, 2(n - 1)/n S.
void ring_all_reduce(Device& device, Communicator& ring, const Tensor& buffer);

/// Computes the same sum by exchanging whole buffers with ranks at distances 1, 2, 4, …:
/// lg n steps of S bytes. If n is no power of two, each surplus rank first sends its
/// buffer to a partner, which adds it, and receives the result at the end. Thakur,
/// Rabenseifner & Gropp 2005, section 4.4.
void recursive_doubling_all_reduce(Device& device, Communicator& group,
                                   const Tensor& buffer);

}  // namespace lockstep
