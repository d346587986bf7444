#include "sim/matmul_kernel.hpp"

namespace lockstep::sim {

extern const MatmulKernel kMatmulAvx2{
    "avx2",
    [] {
        return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    },
    Kernel<float, 32, 4, 3>::multiply, Kernel<double, 32, 4, 3>::multiply};

}  // namespace lockstep::sim
