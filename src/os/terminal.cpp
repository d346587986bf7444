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

namespace {

/// Returns the size that the window reports. If it reports none, returns the
/// environment's size, else `otherwise`.
int window_size(int descriptor, unsigned short winsize::*side, const char* variable,
                int fewest, int otherwise) {
    winsize window{};
    if (::ioctl(descriptor, TIOCGWINSZ, &window) == 0 && window.*side > 0)
        return std::max<int>(window.*side, fewest);
    const char* text = std::getenv(variable);
    const int said = text == nullptr ? 0 : std::atoi(text);
    return said > 0 ? std::max(said, fewest) : otherwise;
}

}  // namespace

int window_columns(int descriptor) {
    constexpr int kFewest = 20;
    if (::isatty(descriptor) == 0) return kPipeColumns;
    return window_size(descriptor, &winsize::ws_col, "COLUMNS", kFewest, kPipeColumns);
}

int window_rows(int descriptor) {
    constexpr int kFewest = 5;
    constexpr int kUsual = 24;
    return window_size(descriptor, &winsize::ws_row, "LINES", kFewest, kUsual);
}

void guard_standard_streams() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(descriptor, F_GETFD) >= 0) continue;
        // open() returns the lowest free number, which is `descriptor`.
        const int mode = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        if (::open("/dev/null", mode) != descriptor) return;
    }
}

}  // namespace lockstep::os
