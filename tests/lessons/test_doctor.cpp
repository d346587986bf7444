#include "gpu/survey_problem.hpp"
#include "lessons/tools/doctor.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons;

namespace {

bool has(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
}

gpu::Survey two_gpus() {
    gpu::Survey survey;
    survey.built = true;
    survey.cuda = "13.0";
    survey.driver = "13.1";
    survey.nccl = survey.nccl_built = "2.28.9";
    survey.gpus = {{"Fast GPU", "9.0", 80'000'000'000, {1}, ""},
                   {"Old GPU", "8.0", 40'000'000'000, {}, ""}};
    return survey;
}

const Finding& part(const std::vector<Finding>& findings, const std::string& name) {
    for (const Finding& finding : findings)
        if (finding.part == name) return finding;
    throw std::runtime_error("there is no finding about " + name);
}

gpu::CudaAnswer answer(int driver, const std::string& error, int gpus = 0) {
    gpu::CudaAnswer answer;
    answer.built = 13000;
    answer.driver = driver;
    answer.gpus = gpus;
    answer.error = error;
    answer.meaning = "what CUDA says";
    return answer;
}

gpu::GpuAnswer gpu_of(int capability, std::vector<int> compiled, const char* error = "") {
    gpu::GpuAnswer answer;
    answer.name = "Some GPU";
    answer.capability = capability;
    answer.compiled = std::move(compiled);
    answer.built = 12040;
    answer.driver = 12020;
    answer.error = error;
    answer.meaning = "what CUDA says";
    return answer;
}

std::string problem(int driver, const std::string& error, int gpus = 0) {
    return gpu::cuda_problem(answer(driver, error, gpus));
}

}  // namespace

TEST_CASE("GPUs are listed with their capabilities and the GPUs that they reach",
          "[lessons]") {
    const std::vector<Finding> findings = gpu_findings(two_gpus());
    CHECK(part(findings, "GPU 0").found == "Fast GPU, capability 9.0, 80.0 GB");
    CHECK(part(findings, "peer access").found == "GPU 0 reaches 1; GPU 1 reaches none");
    CHECK(part(findings, "driver").found == "up to CUDA 13.1");
    CHECK(part(findings, "NCCL").found == "2.28.9");
    for (const Finding& finding : findings)
        CHECK(finding.there);
    CHECK(usable_backends(two_gpus()) == std::vector<std::string>{"sim", "cuda", "nccl"});
}

TEST_CASE("an NCCL before 2.28 works with fewer calls, one before 2.18 is refused",
          "[lessons]") {
    gpu::Survey survey = two_gpus();
    // What counts is the version of NCCL with which Lockstep was compiled.
    survey.nccl_built = "2.18.5";
    CHECK(part(gpu_findings(survey), "NCCL")
              .found.starts_with("2.28.9; built against 2.18.5, older than 2.28"));
    survey.nccl = "2.17.1";
    survey.nccl_problem = gpu::nccl_problem(21701, 21805);
    const Finding nccl = part(gpu_findings(survey), "NCCL");
    CHECK_FALSE(nccl.there);
    CHECK(nccl.found == "NCCL 2.17 is too old: install NCCL 2.18 or later");
    CHECK(nccl.gives.starts_with("--backend nccl;"));
    CHECK(nccl.install == "sudo apt-get install libnccl2 libnccl-dev");
    CHECK(usable_backends(survey) == std::vector<std::string>{"sim", "cuda"});
}

TEST_CASE("an NCCL older than the one of the build is refused, a newer one is not",
          "[lessons]") {
    CHECK(gpu::nccl_problem(21800, 21800).empty());
    CHECK(gpu::nccl_problem(22809, 21800).empty());
    CHECK(gpu::nccl_problem(22801, 22809).empty());
    CHECK(gpu::nccl_problem(22707, 22809) ==
          "NCCL 2.27 was loaded, but this was built against 2.28: let LD_LIBRARY_PATH "
          "name the folder of NCCL 2.28 or later, or build against 2.27");
    CHECK(has(gpu::nccl_problem(0, 22809), "version of NCCL is unknown"));
}

TEST_CASE("kernels run on the capabilities they were compiled for and on later ones",
          "[lessons]") {
    CHECK(gpu::gpu_problem(gpu_of(80, {80})).empty());
    CHECK(gpu::gpu_problem(gpu_of(90, {80})).empty());
    CHECK(gpu::gpu_problem(gpu_of(86, {80, 90})).empty());
    CHECK(gpu::gpu_problem(gpu_of(75, {80, 90})) ==
          "the kernels were compiled for compute capability 8.0 and later, but GPU 0 "
          "(Some GPU) has 7.5; build with -Dgpu_arch=75");
    gpu::GpuAnswer volta = gpu_of(70, {80});
    volta.built = 13000;
    CHECK(has(gpu::gpu_problem(volta),
              "has 7.0; build with the toolkit of CUDA 12 and -Dgpu_arch=70"));
}

TEST_CASE("CUDA's report on kernels overrules the capabilities they were compiled for",
          "[lessons]") {
    // Kernels for 9.0 are compiled as 9.0a, which runs on no other capability.
    CHECK(has(gpu::gpu_problem(gpu_of(100, {80, 90}, "cudaErrorNoKernelImageForDevice")),
              "for compute capability 8.0, 9.0, but GPU 0 (Some GPU) has 10.0; build"));
    CHECK(gpu::gpu_problem(gpu_of(90, {80}, "cudaErrorUnsupportedPtxVersion")) ==
          "the kernels were compiled for compute capability 8.0 by CUDA 12.4, which a "
          "driver of CUDA 12.2 cannot translate for GPU 0 (Some GPU) of 9.0; build with "
          "-Dgpu_arch=90, or install a newer driver");
    CHECK(has(gpu::gpu_problem(gpu_of(90, {90}, "cudaErrorDevicesUnavailable")),
              "cannot load the kernels: cudaErrorDevicesUnavailable (what CUDA says)"));
    gpu::GpuAnswer virtual_gpu = gpu_of(90, {90});
    virtual_gpu.memory_pools = false;
    CHECK(has(gpu::gpu_problem(virtual_gpu), "in stream order"));
}

TEST_CASE("a GPU that cannot be used has the reason in its own finding", "[lessons]") {
    gpu::Survey survey = two_gpus();
    survey.gpus[1].problem = "too old";
    CHECK(part(gpu_findings(survey), "GPU 0").there);
    CHECK(part(gpu_findings(survey), "GPU 1").found == "too old");
    CHECK(part(gpu_findings(survey), "GPU 1").gives == "--backend nccl on it");
    CHECK(usable_backends(survey).size() == 3);
    survey.problem = survey.gpus[0].problem = "too old as well";
    CHECK_FALSE(part(gpu_findings(survey), "GPU 0").there);
    CHECK(part(gpu_findings(survey), "driver").there);
    CHECK(usable_backends(survey) == std::vector<std::string>{"sim"});
}

TEST_CASE("missing parts are named with their use and the command that installs them",
          "[lessons]") {
    gpu::Survey survey;
    survey.problem = "not built";
    const std::vector<Finding> findings = gpu_findings(survey);
    CHECK(findings.size() == 1);
    CHECK(findings[0].found == "not built");
    CHECK(has(findings[0].gives, "--backend cuda and --backend nccl"));
    CHECK(has(findings[0].install, "cuda-toolkit"));
    CHECK(usable_backends(survey) == std::vector<std::string>{"sim"});

    survey = two_gpus();
    survey.gpus.clear();
    survey.problem = "no GPU";
    // No package can install a GPU.
    CHECK(part(gpu_findings(survey), "driver and GPU").install.empty());
    survey.driver = "9.2";
    CHECK(has(part(gpu_findings(survey), "driver and GPU").install, "cuda-drivers"));
    survey.driver.clear();
    CHECK(has(part(gpu_findings(survey), "driver").install, "cuda-drivers"));
}

TEST_CASE(
    "a failed load of the GPU library gives its reason, and nothing about CUDA and NCCL",
    "[lessons]") {
    gpu::Survey survey;
    survey.built = true;
    survey.problem = "libcublas.so.13 was not found";
    const std::vector<Finding> findings = gpu_findings(survey);
    REQUIRE(findings.size() == 1);
    CHECK_FALSE(findings[0].there);
    CHECK(findings[0].found == "libcublas.so.13 was not found");
    CHECK(usable_backends(survey) == std::vector<std::string>{"sim"});
}

TEST_CASE("each reason why CUDA has no GPU has a message of its own", "[lessons]") {
    CHECK(problem(13000, "", 1).empty());
    CHECK(problem(0, "cudaErrorInsufficientDriver") ==
          "this machine has no NVIDIA driver: install one, 580 or later, or run on a "
          "machine that has a GPU");
    CHECK(problem(0, "cudaErrorNoDevice") == problem(0, "cudaErrorInsufficientDriver"));
    CHECK(
        problem(12040, "cudaErrorInsufficientDriver") ==
        "the NVIDIA driver is too old: it supports CUDA 12.4 and this build needs 13.0; "
        "install driver 580 or later, or build with the toolkit of CUDA 12.4");
    CHECK(has(problem(0, "cudaErrorStubLibrary"), "stub"));
    CHECK(has(problem(13000, "cudaErrorNoDevice"), "finds no GPU"));
    CHECK(problem(13000, "") == problem(13000, "cudaErrorNoDevice"));
    CHECK(has(problem(13000, "cudaErrorSystemDriverMismatch"),
              "cudaErrorSystemDriverMismatch (what CUDA says)"));
    gpu::CudaAnswer hidden = answer(13000, "cudaErrorNoDevice");
    hidden.restricted = true;
    CHECK(has(gpu::cuda_problem(hidden), "CUDA_VISIBLE_DEVICES"));
    CHECK(gpu::cuda_version_text(12040) == "12.4");
    CHECK(gpu::cuda_version_text(0).empty());
}

TEST_CASE("the libraries of this program's build have versions", "[lessons]") {
    for (const Finding& finding : build_findings()) {
        CHECK(finding.there);
        CHECK(has(finding.found, "."));
    }
}
