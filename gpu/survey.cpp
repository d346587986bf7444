#include "gpu/survey.hpp"

#include <nccl.h>

#include "gpu/kernels/error.hpp"
#include "gpu/nccl.hpp"
#include "gpu/survey_ask.hpp"
#include "gpu/survey_problem.hpp"

namespace lockstep::gpu {

namespace {

void add_cuda(Survey& survey) {
    const CudaAnswer cuda = ask_cuda();
    survey.cuda = cuda_version_text(cuda.built);
    survey.driver = cuda_version_text(cuda.driver);
    survey.problem = cuda_problem(cuda);
    try {
        for (int gpu = 0; gpu < cuda.gpus; ++gpu) {
            const GpuAnswer answer = ask_gpu(gpu);
            survey.gpus.push_back({answer.name, capability_text(answer.capability),
                                   answer.memory_bytes, ask_peers(gpu, cuda.gpus),
                                   gpu_problem(answer)});
        }
    } catch (const GpuError& error) {
        survey.problem = error.what();
    }
    // All ranks of --backend cuda use the first GPU, and so does rank 0 of --backend
    // nccl.
    if (survey.problem.empty()) survey.problem = survey.gpus.front().problem;
}

void add_nccl(Survey& survey) {
    int loaded = 0;
    if (ncclGetVersion(&loaded) != ncclSuccess) loaded = 0;
    if (loaded > 0) survey.nccl = nccl_version_text(loaded);
    survey.nccl_built = nccl_version_text(NCCL_VERSION_CODE);
    survey.nccl_problem = nccl_problem(loaded, NCCL_VERSION_CODE);
}

}  // namespace

Survey survey() {
    Survey survey;
    survey.built = true;
    add_cuda(survey);
    add_nccl(survey);
    return survey;
}

}  // namespace lockstep::gpu
