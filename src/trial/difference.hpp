#pragma once

#include <cstdint>
#include <string>

#include "src/report/safetensors.hpp"

namespace lockstep {

/// How far two sets of tensors are apart: the largest absolute difference of any element,
/// and the largest relative difference of any tensor, as compare_tensor defines it. Both
/// are NaN if there is a NaN, so that no bound accepts the result.
struct Difference {
    double absolute = 0;
    double relative = 0;
    std::string name;      ///< the tensor that has `relative`; empty if all are equal
    std::int64_t at = -1;  ///< the row-major place in that tensor
};

/// Compares tensors with the same names. Throws UsageError if a tensor is missing on one
/// side, if two shapes differ, or if there is no tensor.
Difference difference(const NamedTensors& got, const NamedTensors& expected);

/// Returns the relative difference of two tensors.
double relative_difference(const HostTensor& got, const HostTensor& expected);

}  // namespace lockstep
