#include <algorithm>

#include <fmt/format.h>

#include "lessons/runner/doctor.hpp"
#include "src/os/child.hpp"
#include "src/os/environment.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

/// The first line of what the program says to --version; empty where it says nothing.
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

}  // namespace lockstep::lessons
