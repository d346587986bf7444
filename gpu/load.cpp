// Loads the GPU twin, a module, when the program first uses it.

#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/module.hpp"
#include "src/core/require.hpp"
#include "src/os/child.hpp"

namespace lockstep::gpu {

namespace {

// gpu/meson.build sets this to the parts that it did not find; empty if the twin is
// built.
constexpr std::string_view kMissing = LOCKSTEP_GPU_MISSING;

struct Loaded {
    const Module* module = nullptr;
    std::string problem;  ///< why there is none
};

/// Returns the folder of the program or of the shared library that this code is in.
std::string folder_of_library() {
    Dl_info here{};
    const bool known = ::dladdr(reinterpret_cast<void*>(&folder_of_library), &here) != 0;
    const std::string path = known && here.dli_fname != nullptr ? here.dli_fname : "";
    return path.substr(0, path.rfind('/') + 1);
}

/// Returns the path of the module; empty if there is none. LOCKSTEP_GPU_MODULE is used if
/// it is set. Otherwise searches relative to the program, in the build folder or
/// installation; for a user's own program, next to the library or in the installation.
std::string module_path() {
    if (const char* const given = std::getenv("LOCKSTEP_GPU_MODULE")) return given;
    if (!kMissing.empty()) return {};
    const std::string program = os::folder_of_program() + "/";
    for (const std::string& place :
         {program + "../gpu/", program + "../../gpu/",
          program + "../" LOCKSTEP_MODULE_FOLDER "/", folder_of_library() + "lockstep/",
          std::string(LOCKSTEP_PREFIX "/" LOCKSTEP_MODULE_FOLDER "/")})
        if (::access((place + "liblockstep_gpu.so").c_str(), R_OK) == 0)
            return place + "liblockstep_gpu.so";
    return {};
}

/// The loader's message begins with the library that it did not find.
std::string problem_text(const std::string& complaint) {
    const std::string library = complaint.substr(0, complaint.find(':'));
    const bool absent = complaint.find("cannot open shared object") != std::string::npos;
    if (!absent) return fmt::format("the GPU twin cannot be loaded: {}", complaint);
    return fmt::format(
        "{}, which the GPU twin needs, was not found; install it, or add its folder to "
        "LD_LIBRARY_PATH",
        library);
}

/// ./lockstep builds the module only if there is a driver.
bool has_driver() {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver != nullptr) ::dlclose(driver);
    return driver != nullptr;
}

Loaded load() {
    const std::string path = module_path();
    if (path.empty() && !kMissing.empty())
        return {nullptr,
                fmt::format(
                    "the GPU twin was not built, because {}; to build it, the machine "
                    "that builds Lockstep needs the CUDA toolkit (nvcc, cuBLAS) and NCCL",
                    kMissing)};
    if (path.empty() && !has_driver())
        return {
            nullptr,
            "this machine has no NVIDIA driver: install one, or run on a machine that "
            "has a GPU; the GPU twin is built there"};
    if (path.empty())
        return {nullptr,
                "liblockstep_gpu.so was not found in the build or installation folder of "
                "this program; build again"};
    // Load lazily: an older NCCL lacks some calls, and the survey explains that better
    // than the loader.
    void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) return {nullptr, problem_text(::dlerror())};
    using Entry = const Module* (*)();
    const auto entry = reinterpret_cast<Entry>(::dlsym(library, "lockstep_gpu_module"));
    if (entry == nullptr)
        return {nullptr, fmt::format("{} is no GPU twin of Lockstep", path)};
    return {entry(), {}};
}

const Loaded& loaded() {
    static const Loaded loaded = load();
    return loaded;
}

const Module& module() {
    if (loaded().module == nullptr) throw MissingError(loaded().problem);
    return *loaded().module;
}

}  // namespace

std::unique_ptr<lockstep::Device> make_device(int index, DeviceMonitor& monitor,
                                              DeviceOptions options) {
    return module().make_device(index, monitor, std::move(options));
}

std::unique_ptr<Process> Process::open(const ProcessOptions& options) {
    return module().open(options);
}

Survey survey() {
    if (loaded().module != nullptr) return module().survey();
    Survey survey;
    survey.built = kMissing.empty();
    survey.problem = loaded().problem;
    return survey;
}

}  // namespace lockstep::gpu
