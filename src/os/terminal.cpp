#include "src/os/terminal.hpp"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

namespace lockstep::os {

bool is_clever_terminal(int descriptor) {
    if (::isatty(descriptor) == 0) return false;
    const char* kind = std::getenv("TERM");
    return kind == nullptr || std::string_view(kind) != "dumb";
}

bool wants_colour(int descriptor) {
    const char* refusal = std::getenv("NO_COLOR");
    return is_clever_terminal(descriptor) && (refusal == nullptr || *refusal == '\0');
}

int window_columns(int descriptor) {
    constexpr int kFewest = 20;
    if (::isatty(descriptor) == 0) return kPipeColumns;
    winsize window{};
    if (::ioctl(descriptor, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
        return std::max<int>(window.ws_col, kFewest);
    const char* columns = std::getenv("COLUMNS");
    const int said = columns == nullptr ? 0 : std::atoi(columns);
    return said > 0 ? std::max(said, kFewest) : kPipeColumns;
}

void guard_standard_streams() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(descriptor, F_GETFD) >= 0) continue;
        // open() takes the lowest number that is free, which is this one.
        const int mode = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        if (::open("/dev/null", mode) != descriptor) return;
    }
}

}  // namespace lockstep::os
