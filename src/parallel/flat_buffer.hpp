#pragma once

#include <memory>
#include <vector>

#include "src/comm/chunks.hpp"
#include "src/nn/parameter.hpp"

namespace lockstep {

/// Moves the parameters' values, or their gradients, into one buffer in the given order,
/// so that one message carries many tensors. The parameters' tensors become views of the
/// buffer. Returns the buffer, (elements), padded with zeros to a multiple of `multiple`.
/// The buffer lives as long as any view of it; the ledger counts it as parameters or as
/// gradients. If a tensor is absent, it is made in the buffer: values with their initial
/// numbers, gradients as zeros. Throws UsageError if the parameters' dtypes differ.
Tensor make_flat(Device& device, const std::vector<Parameter*>& parameters,
                 Tensor Parameter::*member, std::int64_t multiple = 1);

/// Returns this rank's share of a flat buffer that is sharded over a line, in equal
/// ranges. Throws UsageError if the ranks do not divide the buffer.
Tensor own_range(const Tensor& flat, const Communicator& line);

/// Returns this rank's shard of the parameter along the line, with the same name, and the
/// same placements along other lines. `values` and `gradients` have the part's elements.
std::unique_ptr<Parameter> make_shard(const Parameter& parameter, const Part& part,
                                      const Tensor& values, const Tensor& gradients,
                                      const Communicator& line);

/// In the flat buffers, the parameters lie one after another. Returns the shards in one
/// range of these buffers; each shard is a part of one parameter. `values` and
/// `gradients` are this range of the two buffers.
std::vector<std::unique_ptr<Parameter>> shards_in(
    const std::vector<Parameter*>& parameters, Chunk range, const Tensor& values,
    const Tensor& gradients, const Communicator& line);

}  // namespace lockstep
