#pragma once

#include <cstdint>
#include <string>

#include "src/report/safetensors.hpp"

namespace lockstep {

/// Where two sets of tensors are farthest apart: in the tensor whose relative difference,
/// as compare_tensor defines it, is the largest.
struct Difference {
    double absolute = 0;
    double relative = 0;   ///< NaN if there is a NaN, which no bound admits
    std::string name;      ///< the tensor's; empty if nothing differs
    std::int64_t at = -1;  ///< the row-major place in it
};

/// Compares tensors of the same names. Throws UsageError if one side has a tensor that
/// the other has not, or has in another shape, or if there is none at all.
Difference difference(const NamedTensors& got, const NamedTensors& expected);

/// The same for one tensor: its relative difference.
double relative_difference(const HostTensor& got, const HostTensor& expected);

}  // namespace lockstep
