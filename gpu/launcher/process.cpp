#include "gpu/launcher/process.hpp"

#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <sys/prctl.h>
#include <system_error>
#include <unistd.h>

namespace lockstep::gpu {

namespace {

/// The environment of this process with some variables set.
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& variables) {
    std::vector<std::string> all;
    for (char** entry = environ; *entry; ++entry) {
        const std::string_view text = *entry;
        bool replaced = false;
        for (const auto& [name, value] : variables)
            replaced |= text.starts_with(name + "=");
        if (!replaced) all.emplace_back(text);
    }
    for (const auto& [name, value] : variables)
        all.push_back(name + "=" + value);
    return all;
}

/// As exec wants it: pointers into `texts`, and a null one.
std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& text : texts)
        all.push_back(text.data());
    all.push_back(nullptr);
    return all;
}

bool silence() {
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    return nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
           dup2(nothing, STDOUT_FILENO) >= 0;
}

/// What the child does: only what is allowed between fork and exec in any program.
[[noreturn]] void become_copy(const CopyPlan& plan, char** arguments, char** environment,
                              pid_t parent) {
    constexpr std::string_view kSorry = "lockstep: cannot start a copy of itself\n";
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have ended before that.
    if (getppid() != parent) _exit(1);
    sigprocmask(SIG_SETMASK, &plan.signal_mask, nullptr);
    if (plan.keeps_terminal || silence())
        execve("/proc/self/exe", arguments, environment);
    [[maybe_unused]] const auto written =
        write(STDERR_FILENO, kSorry.data(), kSorry.size());
    _exit(1);
}

}  // namespace

pid_t start_copy(const CopyPlan& plan) {
    std::vector<std::string> arguments = plan.arguments;
    std::vector<std::string> environment = environment_with(plan.variables);
    const std::vector<char*> argument_pointers = pointers(arguments);
    const std::vector<char*> environment_pointers = pointers(environment);
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0)
        throw std::system_error(errno, std::generic_category(),
                                "cannot start a copy of this program");
    if (child == 0)
        become_copy(plan, const_cast<char**>(argument_pointers.data()),
                    const_cast<char**>(environment_pointers.data()), parent);
    return child;
}

}  // namespace lockstep::gpu
