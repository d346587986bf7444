#include "lessons/grader/confine/ending.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>

#include <fmt/format.h>

namespace lockstep::lessons {

namespace {

struct Signal {
    int number;
    const char* means;
};

constexpr std::array kSignals{
    Signal{SIGSEGV,
           "segmentation fault: it used memory that is not its own, or its calls "
           "nested deeper than its stack"},
    Signal{SIGABRT,
           "abort: an exception that nobody caught, a failed assertion, or memory "
           "that was freed twice or written past its end"},
    Signal{SIGFPE, "an impossible whole-number operation, such as a division by zero"},
    Signal{SIGILL,
           "an instruction that does not exist: often a function that ends without "
           "return"},
    Signal{SIGTRAP, "a trap: often a function that ends without return"},
    Signal{SIGBUS, "bus error: it used memory that does not exist"},
    Signal{SIGSYS, "a system call that it may not make"},
    Signal{SIGPIPE, "it wrote to whom nobody listens any more"},
    Signal{SIGKILL, "from outside: perhaps the machine had no memory left"},
};

std::string signal_sentence(int number) {
    const auto* known = std::find_if(kSignals.begin(), kSignals.end(),
                                     [=](const Signal& s) { return s.number == number; });
    if (known == kSignals.end()) return fmt::format("was killed by signal {}", number);
    return fmt::format("was killed by signal {} ({})", number, known->means);
}

}  // namespace

std::string ending_sentence(const Ending& ending, const Confinement& confinement) {
    switch (ending.by) {
        case EndedBy::itself:
            return fmt::format("ended by itself with exit status {}", ending.exit_status);
        case EndedBy::cpu_limit:
            return fmt::format("was stopped after {:g} s of processor time",
                               std::ceil(confinement.cpu_seconds));
        case EndedBy::wall_limit:
            return fmt::format("was stopped after {:g} s", confinement.wall_seconds);
        case EndedBy::memory_limit:
            return fmt::format("asked for more than {:g} MiB of memory",
                               static_cast<double>(confinement.memory_bytes) / (1 << 20));
        case EndedBy::request:
            return "was stopped";
        case EndedBy::signal:
            break;
    }
    return signal_sentence(ending.signal);
}

}  // namespace lockstep::lessons
