#include "lessons/grader/confine/limits.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace lockstep::lessons {

namespace {

std::size_t threads_if_of(unsigned user, const std::filesystem::path& process) {
    std::ifstream status(process / "status");
    unsigned owner = user;
    std::size_t threads = 0;
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("Uid:"))
            owner = static_cast<unsigned>(std::stoul(line.substr(4)));
        if (line.starts_with("Threads:")) threads = std::stoul(line.substr(8));
    }
    return owner == user ? threads : 0;
}

/// The threads that a user has on this machine, as far as /proc shows them.
std::size_t count_threads_of(unsigned user) {
    std::size_t count = 0;
    std::error_code error;
    for (std::filesystem::directory_iterator process("/proc", error), end;
         !error && process != end; process.increment(error)) {
        const std::string name = process->path().filename().string();
        if (name.find_first_not_of("0123456789") == std::string::npos)
            count += threads_if_of(user, process->path());
    }
    return count;
}

}  // namespace

std::array<Limit, 8> limits_of(const Confinement& confinement, bool drops_user) {
    constexpr rlim_t kStack = 8 << 20;
    constexpr rlim_t kStackOnRequest = 64 << 20;
    const auto units = [](auto value) { return static_cast<rlim_t>(value); };
    const unsigned user = drops_user ? kNobody : ::getuid();
    // Threads of the same user count, wherever they came from.
    rlim_t processes = 0;
    if (confinement.processes > 0)
        processes = units(confinement.processes) + 1 + count_threads_of(user);
    // SIGXCPU tells of the end; a second later, to who ignores that, comes SIGKILL.
    const rlim_t seconds = units(std::ceil(confinement.cpu_seconds));
    return {{{RLIMIT_CPU, seconds, seconds + 1},
             {RLIMIT_AS, units(confinement.memory_bytes)},
             {RLIMIT_FSIZE, units(confinement.file_bytes)},
             {RLIMIT_NPROC, processes},
             {RLIMIT_NOFILE, units(confinement.files)},
             {RLIMIT_CORE, 0},
             {RLIMIT_MSGQUEUE, 0},
             {RLIMIT_STACK, kStack, kStackOnRequest}}};
}

}  // namespace lockstep::lessons
