#include "sim/matmul_kernel.hpp"

namespace lockstep::sim {

// What each processor of the architecture has; aarch64 has 32 registers.
#ifdef __aarch64__
constexpr int kRegisterRows = 8;
#else
constexpr int kRegisterRows = 4;
#endif

extern const MatmulKernel kMatmulPlain{"plain", [] { return true; },
                                       Kernel<float, 16, kRegisterRows, 3>::multiply,
                                       Kernel<double, 16, kRegisterRows, 3>::multiply};

}  // namespace lockstep::sim
