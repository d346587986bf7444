#pragma once

#include "src/comm/communicator.hpp"
#include "src/device/device.hpp"

namespace lockstep {

// A root has a tensor that it deals out along one of its dimensions, or puts together
// from what all ranks have: the others need not have it. Parts are runs of indices along
// the dimension, as chunk() cuts it; one of an empty run is sent no message.

/// The shape with another extent along the dimension.
Shape with_extent(const Shape& shape, int dimension, std::int64_t extent);

/// The root deals out `whole`, of that shape and type, which is given there alone.
/// Returns this rank's part. The root copies the tensor once, and sends (n-1)/n of it, in
/// a message to each other rank.
Tensor scatter_along(Device& device, Communicator& group, const Shape& shape,
                     int dimension, DType dtype, const Tensor& whole, int root = 0,
                     SourceLine at = SourceLine::here());

/// Puts parts together to a tensor of that shape; returns it on the root, and none
/// elsewhere. The root receives (n-1)/n of it, and copies it once.
Tensor gather_along(Device& device, Communicator& group, const Shape& shape,
                    int dimension, const Tensor& part, int root = 0,
                    SourceLine at = SourceLine::here());

}  // namespace lockstep
