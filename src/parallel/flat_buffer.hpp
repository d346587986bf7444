#pragma once

#include <vector>

#include "src/nn/parameter.hpp"

namespace lockstep {

/// Moves the parameters' values, or their gradients, into one buffer, one behind the
/// other in that order, and makes them views of it: one message then carries many.
/// Returns the buffer, (elements), padded with zeros to a multiple of `multiple`. It
/// lives as long as a view of it, and counts as what it holds in the ledger. Throws
/// UsageError if one is absent, or of another dtype than the first.
Tensor make_flat(Device& device, const std::vector<Parameter*>& parameters,
                 Tensor Parameter::*member, std::int64_t multiple = 1);

}  // namespace lockstep
