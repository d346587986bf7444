#pragma once

#include "src/comm/communicator.hpp"
#include "src/device/device.hpp"

namespace lockstep {

/// A tensor that the root rank scatters along one dimension, or gathers from all ranks.
/// Other ranks need not have the whole tensor. Parts are ranges of indices along the
/// dimension, as chunk() cuts it; no message is sent for an empty part.
struct DealtTensor {
    Shape shape;
    int dimension;
    DType dtype;
};

/// Returns the shape with another extent along the dimension.
Shape with_extent(const Shape& shape, int dimension, std::int64_t extent);

/// The root scatters `whole`; on other ranks it is empty. Returns this rank's part. The
/// root copies the tensor once, and sends (n-1)/n of it, in one message to each other
/// rank.
Tensor scatter_along(Device& device, Communicator& group, const DealtTensor& dealt,
                     const Tensor& whole, int root = 0,
                     SourceLine at = SourceLine::here());

/// Gathers the parts. Returns the whole tensor on the root, and an empty tensor
/// elsewhere. The root receives (n-1)/n of the tensor, and copies it once.
Tensor gather_along(Device& device, Communicator& group, const DealtTensor& dealt,
                    const Tensor& part, int root = 0, SourceLine at = SourceLine::here());

}  // namespace lockstep
