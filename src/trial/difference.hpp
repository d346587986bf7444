#pragma once

#include <cstdint>
#include <string>

#include "src/report/safetensors.hpp"

namespace lockstep {

/// How far two sets of tensors are apart: the largest absolute difference of any element,
/// and of any tensor the largest relative one, as compare_tensor defines it. Both are NaN
/// if there is a NaN, which no bound admits.
struct Difference {
    double absolute = 0;
    double relative = 0;
    std::string name;      ///< of the tensor with that; empty if nothing differs
    std::int64_t at = -1;  ///< the row-major place in it
};

/// Compares tensors of the same names. Throws UsageError if one side has a tensor that
/// the other has not, or has in another shape, or if there is none at all.
Difference difference(const NamedTensors& got, const NamedTensors& expected);

/// The same for one tensor: its relative difference.
double relative_difference(const HostTensor& got, const HostTensor& expected);

}  // namespace lockstep
