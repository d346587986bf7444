#include "lessons/tools/doctor.hpp"

#include <CLI/Version.hpp>
#include <boost/version.hpp>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <Eigen/Core>
#include <fmt/format.h>

#include "src/os/child.hpp"
#include "src/os/environment.hpp"
#include "src/report/machine.hpp"
#include "src/report/version.hpp"
#include "src/text/json.hpp"
#include "src/text/utf8.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

std::vector<Finding> build_findings() {
    return {
        {"compiler", true, this_machine().compiler, "", ""},
        {"Eigen", true,
         fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION,
                     EIGEN_MINOR_VERSION),
         "", ""},
        {"Boost", true,
         fmt::format("{}.{}.{}", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000,
                     BOOST_VERSION % 100),
         "", ""},
        {"fmt", true,
         fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100,
                     FMT_VERSION % 100),
         "", ""},
        {"CLI11", true, CLI11_VERSION, "", ""},
        {"nlohmann-json", true,
         fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                     NLOHMANN_JSON_VERSION_PATCH),
         "", ""},
    };
}

namespace {

const std::string kBoth = "--backend cuda and --backend nccl";
const std::string kPackages = "; NVIDIA's apt repository has the packages:";

/// Returns whether a version of NCCL, such as "2.28.9", has the calls that are new in
/// 2.28. Lockstep uses these calls if it was built with an NCCL that has them.
bool has_all_to_all(const std::string& version) {
    int major = 0;
    int minor = 0;
    std::sscanf(version.c_str(), "%d.%d", &major, &minor);
    return major > 2 || (major == 2 && minor >= 28);
}

Finding driver_finding(const gpu::Survey& survey) {
    if (survey.problem.empty() || !survey.gpus.empty())
        return {"driver", true, "up to CUDA " + survey.driver, "", ""};
    const std::string part = survey.driver.empty() ? "driver" : "driver and GPU";
    // Without a driver the text is empty, and strtod returns 0.
    const bool too_old = std::strtod(survey.driver.c_str(), nullptr) <
                         std::strtod(survey.cuda.c_str(), nullptr);
    if (!too_old) return {part, false, survey.problem, kBoth, ""};
    return {part, false, survey.problem, kBoth + kPackages,
            "sudo apt-get install cuda-drivers"};
}

Finding gpu_finding(std::size_t gpu, const gpu::GpuInfo& info) {
    const std::string part = fmt::format("GPU {}", gpu);
    if (!info.problem.empty())
        return {part, false, info.problem, gpu == 0 ? kBoth : "--backend nccl on it", ""};
    return {part, true,
            fmt::format("{}, capability {}, {:.1f} GB", info.name, info.capability,
                        static_cast<double>(info.memory_bytes) / 1e9),
            "", ""};
}

std::string peers_text(const gpu::Survey& survey) {
    std::string text;
    for (std::size_t gpu = 0; gpu < survey.gpus.size(); ++gpu) {
        const std::vector<int>& peers = survey.gpus[gpu].peers;
        text += fmt::format(
            "{}GPU {} reaches {}", text.empty() ? "" : "; ", gpu,
            peers.empty() ? "none" : fmt::format("{}", fmt::join(peers, ", ")));
    }
    return text;
}

Finding nccl_finding(const gpu::Survey& survey) {
    if (!survey.nccl_problem.empty())
        return {"NCCL", false, survey.nccl_problem, "--backend nccl" + kPackages,
                "sudo apt-get install libnccl2 libnccl-dev"};
    return {"NCCL", true,
            survey.nccl +
                (has_all_to_all(survey.nccl_built)
                     ? ""
                     : fmt::format("; built against {}, older than 2.28, so all-to-all, "
                                   "gather and scatter are made of sends and receives",
                                   survey.nccl_built)),
            "", ""};
}

}  // namespace

std::vector<Finding> gpu_findings(const gpu::Survey& survey) {
    if (!survey.built)
        return {{"GPU twin", false, survey.problem, kBoth + kPackages,
                 "sudo apt-get install cuda-toolkit libnccl-dev"}};
    // The GPU twin exists but could not be loaded, so its CUDA version is unknown.
    if (survey.cuda.empty()) return {{"GPU twin", false, survey.problem, kBoth, ""}};
    std::vector<Finding> findings{
        {"GPU twin", true, "built against CUDA " + survey.cuda, "", ""},
        driver_finding(survey)};
    for (std::size_t gpu = 0; gpu < survey.gpus.size(); ++gpu)
        findings.push_back(gpu_finding(gpu, survey.gpus[gpu]));
    if (survey.gpus.size() > 1)
        findings.push_back({"peer access", true, peers_text(survey), "", ""});
    findings.push_back(nccl_finding(survey));
    return findings;
}

std::vector<std::string> usable_backends(const gpu::Survey& survey) {
    std::vector<std::string> backends{"sim"};
    if (!survey.built || !survey.problem.empty()) return backends;
    backends.push_back("cuda");
    if (survey.nccl_problem.empty()) backends.push_back("nccl");
    return backends;
}

namespace {

/// Returns the first line of the program's output for --version; empty if there is none.
std::string version_of(const std::string& program) {
    constexpr double kPatience = 5;
    try {
        const os::Child child = os::run_child({program, "--version"}, kPatience);
        const std::string& text = child.output.empty() ? child.errors : child.output;
        return child.status == 0 ? printable(text.substr(0, text.find('\n'))) : "";
    } catch (const std::exception&) {
        return "";
    }
}

Finding launcher(const std::string& name, bool tells_version, const std::string& gives,
                 const std::string& install) {
    const std::string file = os::find_on_path(name);
    if (file.empty())
        return {name, false, fmt::format("{} is not on the PATH", name), gives, install};
    const std::string version = tells_version ? version_of(file) : "";
    return {name, true, version.empty() ? file : version, "", ""};
}

}  // namespace

std::vector<Finding> launcher_findings() {
    return {
        launcher("mpirun", true, "--backend nccl under MPI, on several machines",
                 "sudo apt-get install openmpi-bin"),
        launcher("srun", true, "--backend nccl on clusters that Slurm schedules",
                 "sudo apt-get install slurm-client"),
        launcher("torchrun", false, "--backend nccl as PyTorch starts its programs",
                 "pip install torch"),
    };
}

namespace {

/// Findings of `lockstep doctor` under one title.
struct Section {
    std::string title;
    std::vector<Finding> findings;
};

std::int64_t memory_bytes() {
    return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) *
           ::sysconf(_SC_PAGE_SIZE);
}

std::string machine_text() {
    const Machine machine = this_machine();
    return fmt::format("{} core{} ({}), {:.1f} GB of memory, {}", machine.cores,
                       machine.cores == 1 ? "" : "s", machine.cpu,
                       static_cast<double>(memory_bytes()) / 1e9, machine.system);
}

constexpr int kNames = 18;

/// Returns a name, and next to it lines of text.
std::string entry(const std::string& name, const std::vector<std::string>& paragraphs,
                  int width) {
    std::string text;
    for (const std::string& paragraph : paragraphs)
        for (const std::string& line : wrap(paragraph, width - kNames))
            text.append(pad_right(text.empty() ? "  " + name : "", kNames))
                .append(line + "\n");
    return text;
}

std::string entry(const Finding& finding, int width) {
    if (finding.there) return entry(finding.part, {finding.found}, width);
    std::string text =
        entry(finding.part,
              {"MISSING: " + finding.found, "it would give " + finding.gives}, width);
    // A command is not wrapped.
    if (!finding.install.empty()) text += pad_right("", kNames) + finding.install + "\n";
    return text;
}

std::vector<Section> sections_of(const gpu::Survey& survey) {
    return {{"This program is built with", build_findings()},
            {"GPUs", gpu_findings(survey)},
            {"Starting processes", launcher_findings()}};
}

}  // namespace

std::string doctor_text(const gpu::Survey& survey, int width) {
    std::string text = fmt::format("Lockstep {}\n", kVersion);
    text += entry("machine", {machine_text()}, width);
    for (const Section& section : sections_of(survey)) {
        text += "\n" + section.title + "\n";
        for (const Finding& finding : section.findings)
            text += entry(finding, width);
    }
    return text + fmt::format("\nBackends that work here: {}.\n",
                              fmt::join(usable_backends(survey), ", "));
}

namespace {

Json finding_json(const Finding& finding) {
    Json json{{"part", finding.part}, {"there", finding.there}, {"found", finding.found}};
    if (finding.there) return json;
    json["gives"] = finding.gives;
    if (!finding.install.empty()) json["install"] = finding.install;
    return json;
}

}  // namespace

std::string doctor_json(const gpu::Survey& survey) {
    const Machine machine = this_machine();
    Json findings = Json::array();
    for (const Section& section : sections_of(survey))
        for (const Finding& finding : section.findings)
            findings.push_back(finding_json(finding));
    Json gpus = Json::array();
    for (const gpu::GpuInfo& gpu : survey.gpus)
        gpus.push_back({{"name", gpu.name},
                        {"capability", gpu.capability},
                        {"memory_bytes", gpu.memory_bytes},
                        {"peers", gpu.peers}});
    return Json{{"lockstep", kVersion},
                {"machine",
                 {{"cpu", machine.cpu},
                  {"cores", machine.cores},
                  {"memory_bytes", memory_bytes()},
                  {"system", machine.system}}},
                {"backends", usable_backends(survey)},
                {"cuda", survey.cuda},
                {"driver", survey.driver},
                {"nccl", survey.nccl},
                {"gpus", gpus},
                {"findings", findings}}
               .dump(2) +
           "\n";
}

}  // namespace lockstep::lessons
