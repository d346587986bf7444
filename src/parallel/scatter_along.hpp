#pragma once

#include "src/comm/communicator.hpp"
#include "src/device/device.hpp"

namespace lockstep {

/// A tensor that a root deals out along one of its dimensions, or puts together from what
/// all ranks have; other ranks need not have it. Parts are runs of indices along the
/// dimension, as chunk() cuts it; no message is sent for an empty one.
struct DealtTensor {
    Shape shape;
    int dimension;
    DType dtype;
};

/// The shape with another extent along the dimension.
Shape with_extent(const Shape& shape, int dimension, std::int64_t extent);

/// The root deals out `whole`, which is given there alone. Returns this rank's part. The
/// root copies the tensor once, and sends (n-1)/n of it, in a message to each other rank.
Tensor scatter_along(Device& device, Communicator& group, const DealtTensor& dealt,
                     const Tensor& whole, int root = 0,
                     SourceLine at = SourceLine::here());

/// Puts parts together; returns the whole on the root, and none elsewhere. The root
/// receives (n-1)/n of it, and copies it once.
Tensor gather_along(Device& device, Communicator& group, const DealtTensor& dealt,
                    const Tensor& part, int root = 0, SourceLine at = SourceLine::here());

}  // namespace lockstep
