#include "lessons/grader/confine/activity.hpp"

#include <cstddef>
#include <ctime>
#include <fstream>
#include <string>
#include <unistd.h>

namespace lockstep::lessons {

namespace {

std::string folder_of(pid_t process) {
    return "/proc/" + std::to_string(process);
}

}  // namespace

std::optional<Activity> activity_of(pid_t process) {
    std::ifstream times(folder_of(process) + "/schedstat");
    std::ifstream status(folder_of(process) + "/stat");
    double computed = 0;
    double queued = 0;
    std::string line;
    if (!(times >> computed >> queued) || !std::getline(status, line))
        return std::nullopt;
    // The state follows the program's name, which is in parentheses and may contain
    // anything.
    const std::size_t state = line.rfind(')') + 2;
    constexpr double kNanosecond = 1e-9;
    return Activity{computed * kNanosecond, queued * kNanosecond,
                    state < line.size() && (line[state] == 'S' || line[state] == 'T')};
}

double processor_seconds_of(pid_t process) {
    clockid_t clock = 0;
    timespec time = {};
    if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &time) != 0)
        return 0;
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::optional<pid_t> child_of(pid_t process) {
    const std::string name = std::to_string(process);
    std::ifstream file(folder_of(process) + "/task/" + name + "/children");
    pid_t child = 0;
    if (!(file >> child)) return std::nullopt;
    return child;
}

double processor_seconds() {
    return processor_seconds_of(::getpid());
}

}  // namespace lockstep::lessons
