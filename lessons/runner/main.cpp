#include <csignal>

#include "lessons/runner/command.hpp"
#include "lessons/runner/terminal.hpp"

int main(int count, char** words) {
    using namespace lockstep::lessons;
    guard_standard_streams();
    std::signal(SIGXFSZ,
                SIG_IGN);  // a file over its limit is an error of write(), not our end
    try {
        const std::vector<std::string> arguments(words + (count > 0 ? 1 : 0),
                                                 words + count);
        return std::visit([](const auto& request) { return run(request); },
                          read_request(arguments));
    } catch (...) {
        return report_exception();
    }
}
