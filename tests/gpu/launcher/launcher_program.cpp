// The program that the tests of launchers start. If a launcher has placed the program, it
// takes part in a run; else it supervises copies of itself.
//
// usage: launcher_program MODE [RANKS [GRACE]]

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <signal.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gpu/launcher/control.hpp"
#include "gpu/launcher/supervise.hpp"
#include "src/os/environment.hpp"

using namespace lockstep;
using namespace lockstep::gpu;

namespace {

[[noreturn]] void hang() {
    for (;;)
        pause();
}

/// All processes tell each other their places; rank 0 prints them.
int meet(const Placement& place) {
    const auto control = Control::join(place, {10, 1});
    const auto all = control->all_gather(
        fmt::format("{}/{}:{}", place.local_rank, place.local_size, getppid() > 1));
    if (place.rank == 0)
        fmt::print("{} {} {}\n", place.launcher, place.size, fmt::join(all, " "));
    return 0;
}

/// Prints the process's number, so that a test can see when it ends. Then misbehaves.
int misbehave(const std::string& mode, int rank) {
    fmt::print(stderr, "pid {} {}\n", rank, getpid());
    if (rank == 0) fmt::print("rank 0 prints\n");
    if (rank == 1) fmt::print("rank 1 prints\n");
    if (mode == "secret") {
        fmt::print(stderr, "{}\n", os::variable("LOCKSTEP_SECRET").value_or("none"));
        return 0;
    }
    std::fflush(stdout);
    if (mode == "exit3" && rank == 1) return 3;
    if (mode == "segv" && rank == 2) raise(SIGSEGV);
    if (mode == "kill" && rank == 0) raise(SIGKILL);
    if (mode == "late" && rank == 1) return 1;
    if (mode == "late" && rank == 0) {
        sleep(1);
        raise(SIGKILL);
    }
    if (mode == "late") return 0;
    if (mode == "read") {
        std::string line;
        std::getline(std::cin, line);
        fmt::print(stderr, "read {} \"{}\"\n", rank, line);
        return 0;
    }
    if (mode == "flood" && rank == 0)
        for (;;)
            std::puts("more than anybody reads");
    if (mode == "deaf" && rank == 1) {
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
    }
    hang();
}

/// In an exchange, two processes wait forever for a third. They are not stalled.
int wait(const std::string& mode, const Placement& place) {
    const auto control = Control::join(place, {0.4, 0.3});
    try {
        control->all_gather("");
        fmt::print(stderr, "pid {} {}\n", place.rank, getpid());
        const int stopped = mode == "stop0" ? 0 : 2;
        if (place.rank == stopped) raise(SIGSTOP);
        control->all_gather("");
    } catch (const RunStopped& stop) {
        if (control->claim_text()) std::fputs(stop.what(), stderr);
        return stop.failure().status;
    }
    return 0;
}

/// After a failure, all end with the failure's status, and rank 0 prints its text.
int fail(const std::string& mode, const Placement& place) {
    const auto control = Control::join(place, {10, 0.3});
    try {
        control->all_gather("");
        fmt::print(stderr, "pid {} {}\n", place.rank, getpid());
        control->all_gather("");
        if (place.rank == 1 && mode == "throw") control->fail({1, 4, "rank 1 threw"});
        if (place.rank == 1 && mode == "lose") raise(SIGKILL);
        if (place.rank == 0 && mode == "lose0") raise(SIGKILL);
        if (place.rank == 1 && mode == "stuck") {
            control->fail({1, 4, "rank 1 is stuck"});
            hang();
        }
        control->all_gather("");
    } catch (const RunStopped& stop) {
        if (control->claim_text()) std::fputs(stop.what(), stderr);
        return stop.failure().status;
    }
    return 0;
}

int run(const std::string& mode, const Placement& place) {
    if (mode == "meet") return meet(place);
    if (mode == "stop0" || mode == "stop2") return wait(mode, place);
    if (mode == "throw" || mode == "lose" || mode == "lose0" || mode == "stuck")
        return fail(mode, place);
    return misbehave(mode, place.rank);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "meet";
    try {
        if (const auto place = find_placement(process_environment()))
            return run(mode, *place);
        return supervise(argc > 2 ? std::atoi(argv[2]) : 3, {mode},
                         argc > 3 ? std::atof(argv[3]) : 10);
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 2;
    }
}
