#include "lessons/grader/confine/activity.hpp"

#include <ctime>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>

namespace lockstep::lessons {

namespace {

std::string folder_of(pid_t process) {
    return "/proc/" + std::to_string(process);
}

}  // namespace

std::optional<Activity> activity_of(pid_t process) {
    std::ifstream file(folder_of(process) + "/stat");
    std::string line;
    if (!std::getline(file, line)) return std::nullopt;
    // The program's name, in parentheses, may contain anything.
    std::istringstream fields(line.substr(line.rfind(')') + 1));
    char state = 0;
    fields >> state;
    constexpr int kBetween = 10;  // from the parent's number to the page faults
    std::string skipped;
    for (int i = 0; i < kBetween; ++i)
        fields >> skipped;
    double user = 0;
    double system = 0;
    if (!(fields >> user >> system)) return std::nullopt;
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    // R runs or waits for a processor; D waits for memory or a disk.
    return Activity{(user + system) / ticks, state != 'R' && state != 'D'};
}

std::optional<pid_t> child_of(pid_t process) {
    const std::string name = std::to_string(process);
    std::ifstream file(folder_of(process) + "/task/" + name + "/children");
    pid_t child = 0;
    if (!(file >> child)) return std::nullopt;
    return child;
}

double processor_seconds() {
    timespec time = {};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace lockstep::lessons
