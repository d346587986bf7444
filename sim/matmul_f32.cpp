#include "sim/matmul_impl.hpp"

namespace lockstep::sim {

template void multiply_matrices<float>(const Tensor&, const Tensor&, const Tensor&,
                                       const MatmulOptions&);

}  // namespace lockstep::sim
