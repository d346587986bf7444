#include "gpu/environment.hpp"

#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "gpu/nccl.hpp"
#include "gpu/survey.hpp"
#include "gpu/survey_ask.hpp"
#include "gpu/survey_problem.hpp"
#include "src/core/require.hpp"

namespace lockstep::gpu {

namespace {

void set_default(const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 0);
}

}  // namespace

void require_gpu() {
    const Survey here = survey();
    if (!here.problem.empty()) throw MissingError(here.problem);
}

void require_nccl() {
    const Survey here = survey();
    if (!here.nccl_problem.empty()) throw MissingError(here.nccl_problem);
}

void require_kernels() {
    const std::string problem = gpu_problem(ask_own_gpu());
    if (!problem.empty()) throw MissingError(problem);
}

void share_gpu(int rank) {
    constexpr int kAsksFrom = 23000;
    if (nccl_version() >= kAsksFrom) {
        set_default("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    } else {
        set_default("NCCL_HOSTID", fmt::format("lockstep-{}", rank));
        set_default("NCCL_SOCKET_IFNAME", "lo");
        set_default("NCCL_NET", "Socket");
        set_default("NCCL_IB_DISABLE", "1");
        set_default("NCCL_MNNVL_ENABLE", "0");
        set_default("NCCL_NVLS_ENABLE", "0");
        set_default("NCCL_RAS_ENABLE", "0");
    }
    set_default("NCCL_MAX_CTAS", "2");
}

}  // namespace lockstep::gpu
