#pragma once

#include "src/core/tensor.hpp"
#include "src/device/options.hpp"

namespace lockstep::sim {

/// destination (+)= op(a) (m, k) times op(b) (k, n), for T float or double.
template <typename T>
void multiply_matrices(const Tensor& destination, const Tensor& a, const Tensor& b,
                       const MatmulOptions& options);

extern template void multiply_matrices<float>(const Tensor&, const Tensor&, const Tensor&,
                                              const MatmulOptions&);
extern template void multiply_matrices<double>(const Tensor&, const Tensor&,
                                               const Tensor&, const MatmulOptions&);

}  // namespace lockstep::sim
