#include "tests/gpu/emulator/processes.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace emulated::test {

namespace {

constexpr unsigned kMostSeconds = 60;

struct Child {
    pid_t pid = 0;
    int errors = -1;
};

[[noreturn]] void be_child(int rank, int errors, lockstep::FunctionRef<void(int)> body) {
    for (const int fatal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL})
        std::signal(fatal, SIG_DFL);  // without the test framework's handler
    dup2(errors, STDERR_FILENO);
    alarm(kMostSeconds);
    try {
        body(rank);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "process %d: %s\n", rank, error.what());
        std::exit(1);
    }
    std::exit(0);
}

Child start(int rank, lockstep::FunctionRef<void(int)> body) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid < 0) throw std::runtime_error("no process");
    if (pid == 0) {
        close(ends[0]);
        be_child(rank, ends[1], body);
    }
    close(ends[1]);
    return {pid, ends[0]};
}

Ended finish(const Child& child) {
    Ended ended;
    char bytes[4096];
    for (ssize_t got; (got = read(child.errors, bytes, sizeof bytes)) > 0;)
        ended.errors.append(bytes, static_cast<std::size_t>(got));
    close(child.errors);
    int status = 0;
    waitpid(child.pid, &status, 0);
    ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return ended;
}

}  // namespace

std::vector<Ended> in_processes(int count, lockstep::FunctionRef<void(int)> body) {
    std::vector<Child> children;
    children.reserve(static_cast<std::size_t>(count));
    for (int rank = 0; rank < count; ++rank)
        children.push_back(start(rank, body));
    std::vector<Ended> ended;
    ended.reserve(children.size());
    for (const Child& child : children)
        ended.push_back(finish(child));
    return ended;
}

std::string trouble(const std::vector<Ended>& processes) {
    std::string text;
    for (const Ended& process : processes)
        if (process.status != 0)
            text +=
                "status " + std::to_string(process.status) + ": " + process.errors + "\n";
    return text;
}

void expect(bool holds, const char* what, int line) {
    if (!holds)
        throw std::runtime_error("line " + std::to_string(line) +
                                 ": this is false: " + what);
}

}  // namespace emulated::test
