#pragma once

#include <memory>
#include <vector>

#include "src/comm/chunks.hpp"
#include "src/nn/parameter.hpp"

namespace lockstep {

/// Moves the parameters' values, or their gradients, into one buffer, one behind the
/// other in that order, and makes them views of it: one message then carries many.
/// Returns the buffer, (elements), padded with zeros to a multiple of `multiple`. It
/// lives as long as a view of it, and counts as what it holds in the ledger. What is
/// absent is made there: values as they begin, gradients as zeros. Throws UsageError if
/// one is of another dtype than the first.
Tensor make_flat(Device& device, const std::vector<Parameter*>& parameters,
                 Tensor Parameter::*member, std::int64_t multiple = 1);

/// Returns this rank's share of a flat buffer that is dealt out to a line, in equal
/// ranges. Throws UsageError if the ranks do not divide it.
Tensor own_range(const Tensor& flat, const Communicator& line);

/// Returns a parameter of the same name that is a part of it on this rank, sharded along
/// the line and placed as it is along others. `values` and `gradients` hold that part.
std::unique_ptr<Parameter> make_shard(const Parameter& of, const Part& part,
                                      const Tensor& values, const Tensor& gradients,
                                      const Communicator& line);

/// Returns, for parameters that lie one behind the other in flat buffers, what a range of
/// these buffers consists of: shards, each a part of one of them. `values` and
/// `gradients` hold that range.
std::vector<std::unique_ptr<Parameter>> shards_in(
    const std::vector<Parameter*>& parameters, Chunk range, const Tensor& values,
    const Tensor& gradients, const Communicator& line);

}  // namespace lockstep
