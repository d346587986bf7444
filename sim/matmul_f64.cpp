#include "sim/matmul_impl.hpp"

namespace lockstep::sim {

template void multiply_matrices(const Product<double>&);

}  // namespace lockstep::sim
