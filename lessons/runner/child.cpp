#include "lessons/runner/child.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "gpu/launcher/held_signals.hpp"

extern char** environ;

namespace lockstep::lessons {

namespace {

void require_success(int error, const std::string& what) {
    if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

struct Pipe {
    gpu::Descriptor reading;
    gpu::Descriptor writing;
};

Pipe make_pipe() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
        require_success(errno, "cannot make a pipe");
    return {gpu::Descriptor(ends[0]), gpu::Descriptor(ends[1])};
}

pid_t spawn(const std::vector<std::string>& words, const Pipe& output, const Pipe& errors,
            const gpu::HeldSignals& signals) {
    std::vector<char*> arguments;
    for (const std::string& word : words)
        arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);

    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&files, output.writing.number(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&files, errors.writing.number(), STDERR_FILENO);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setsigmask(&attributes, &signals.mask_before());
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t process = 0;
    const int error = ::posix_spawnp(&process, words.front().c_str(), &files, &attributes,
                                     arguments.data(), environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&files);
    require_success(error, words.front());
    return process;
}

/// Takes what is there; closes the pipe at its end.
void take(gpu::Descriptor& from, std::string& text) {
    std::array<char, 65536> buffer;
    const ssize_t got = ::read(from.number(), buffer.data(), buffer.size());
    if (got > 0)
        text.append(buffer.data(), static_cast<std::size_t>(got));
    else if (got == 0 || errno != EINTR)
        from.close();
}

int wait_for(pid_t process) {
    int status = 0;
    while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Child run_child(const std::vector<std::string>& words,
                std::optional<double> timeout_seconds) {
    const gpu::HeldSignals signals;
    Pipe output = make_pipe();
    Pipe errors = make_pipe();
    const pid_t process = spawn(words, output, errors, signals);
    output.writing.close();
    errors.writing.close();

    const auto deadline =
        timeout_seconds ? gpu::after(gpu::Clock::now(), *timeout_seconds) : gpu::kNever;
    Child child;
    while (output.reading.open() || errors.reading.open()) {
        std::array<pollfd, 3> watched{{{output.reading.number(), POLLIN, 0},
                                       {errors.reading.number(), POLLIN, 0},
                                       {signals.descriptor(), POLLIN, 0}}};
        const int ready =
            ::poll(watched.data(), watched.size(), gpu::milliseconds_until(deadline));
        if (gpu::Clock::now() >= deadline) {
            ::kill(process, SIGKILL);
            break;
        }
        if (ready <= 0) continue;
        if (watched[0].revents != 0) take(output.reading, child.output);
        if (watched[1].revents != 0) take(errors.reading, child.errors);
        while (const std::optional<signalfd_siginfo> signal = signals.take()) {
            const int number = static_cast<int>(signal->ssi_signo);
            if (number == SIGCHLD) continue;
            child.interrupted_by = number;
            if (gpu::sent_by_process(*signal)) ::kill(process, number);
        }
    }
    child.status = wait_for(process);
    return child;
}

}  // namespace lockstep::lessons
