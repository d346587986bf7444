#include "sim/matmul_kernel.hpp"

namespace lockstep::sim {

extern const MatmulKernel kMatmulAvx512{
    "avx512", [] { return __builtin_cpu_supports("avx512f") != 0; },
    Kernel<float, 64, 8, 3>::multiply, Kernel<double, 64, 8, 3>::multiply};

}  // namespace lockstep::sim
