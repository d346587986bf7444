#pragma once

#include <memory>
#include <vector>

#include "src/comm/chunks.hpp"
#include "src/nn/parameter.hpp"

namespace lockstep {

/// Moves the parameters' values, or their gradients, into one buffer, in that order, and
/// makes them views of it, so that one message carries many. Returns the buffer,
/// (elements), padded with zeros to a multiple of `multiple`. The buffer lives as long as
/// any view of it; the ledger counts it as parameters or as gradients. Absent tensors are
/// made there: values with their initial numbers, gradients as zeros. Throws UsageError
/// if one has another dtype than the first.
Tensor make_flat(Device& device, const std::vector<Parameter*>& parameters,
                 Tensor Parameter::*member, std::int64_t multiple = 1);

/// Returns this rank's share of a flat buffer that is sharded over a line, in equal
/// ranges. Throws UsageError if the ranks do not divide it.
Tensor own_range(const Tensor& flat, const Communicator& line);

/// Returns this rank's shard of `of` along the line: a parameter of the same name, with
/// the same placements along other lines. `values` and `gradients` hold that part.
std::unique_ptr<Parameter> make_shard(const Parameter& parameter, const Part& part,
                                      const Tensor& values, const Tensor& gradients,
                                      const Communicator& line);

/// Returns the shards in one range of flat buffers in which parameters lie one after
/// another. Each shard is a part of one parameter. `values` and `gradients` hold that
/// range.
std::vector<std::unique_ptr<Parameter>> shards_in(
    const std::vector<Parameter*>& parameters, Chunk range, const Tensor& values,
    const Tensor& gradients, const Communicator& line);

}  // namespace lockstep
