#include "src/report/machine.hpp"

#include <fstream>
#include <sys/utsname.h>
#include <thread>

namespace lockstep {

namespace {

/// Returns the value of the first "model name" line of /proc/cpuinfo.
std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos)
            return line.substr(colon + 2);
    }
    return "unknown";
}

std::string system_name() {
    utsname name{};
    if (uname(&name) != 0) return "unknown";
    return std::string(name.sysname) + " " + name.release + " " + name.machine;
}

}  // namespace

Machine this_machine() {
#ifdef __clang__
    const char* compiler = "clang " __clang_version__;
#else
    const char* compiler = "g++ " __VERSION__;
#endif
    return {cpu_model(), static_cast<int>(std::thread::hardware_concurrency()),
            system_name(), compiler};
}

}  // namespace lockstep
