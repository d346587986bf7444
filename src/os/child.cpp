#include "src/os/child.hpp"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <spawn.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "src/os/deadline.hpp"
#include "src/os/descriptor.hpp"
#include "src/os/environment.hpp"
#include "src/os/held_signals.hpp"

namespace lockstep::os {

namespace {

pid_t spawn(const std::vector<std::string>& words, const Pipe& output, const Pipe& errors,
            const HeldSignals& signals) {
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
                                     exec_words(words).data(), environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&files);
    if (error != 0)
        throw std::system_error(error, std::generic_category(), words.front());
    return process;
}

/// Appends to `text` the bytes that the pipe has now. Closes the pipe if its data ends.
void take(Descriptor& from, std::string& text) {
    std::array<char, 65536> buffer;
    const ssize_t got = read_some(from.number(), buffer.data(), buffer.size());
    if (got > 0)
        text.append(buffer.data(), static_cast<std::size_t>(got));
    else
        from.close();
}

bool silence() {
    const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    return nothing >= 0 && ::dup2(nothing, STDIN_FILENO) >= 0 &&
           ::dup2(nothing, STDOUT_FILENO) >= 0;
}

/// Turns the child of a fork into the copy. Uses only calls that any program may make
/// between fork and exec.
[[noreturn]] void become_copy(const CopyPlan& plan, char** arguments, char** environment,
                              pid_t parent) {
    constexpr std::string_view kSorry = "lockstep: cannot start a copy of itself\n";
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have ended before the call of prctl.
    if (::getppid() != parent) ::_exit(1);
    ::sigprocmask(SIG_SETMASK, &plan.signal_mask, nullptr);
    if (plan.keeps_terminal || silence())
        ::execve("/proc/self/exe", arguments, environment);
    write_some(STDERR_FILENO, kSorry.data(), kSorry.size());
    ::_exit(1);
}

}  // namespace

Child run_child(const std::vector<std::string>& words,
                std::optional<double> timeout_seconds) {
    const HeldSignals signals;
    Pipe output = make_pipe();
    Pipe errors = make_pipe();
    const pid_t process = spawn(words, output, errors, signals);
    output.writing.close();
    errors.writing.close();

    const auto deadline =
        timeout_seconds ? after(Clock::now(), *timeout_seconds) : kNever;
    Child child;
    while (output.reading.open() || errors.reading.open()) {
        std::array<pollfd, 3> watched{{{output.reading.number(), POLLIN, 0},
                                       {errors.reading.number(), POLLIN, 0},
                                       {signals.descriptor(), POLLIN, 0}}};
        const int ready =
            ::poll(watched.data(), watched.size(), milliseconds_until(deadline));
        if (Clock::now() >= deadline) {
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
            if (sent_by_process(*signal)) ::kill(process, number);
        }
    }
    const int status = wait_for(process);
    child.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return child;
}

std::string folder_of_program() {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

void become(const std::string& program, const std::vector<std::string>& arguments) {
    std::vector<std::string> words{program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    ::execv(program.c_str(), exec_words(words).data());
    throw std::system_error(errno, std::generic_category(), program);
}

pid_t start_copy(const CopyPlan& plan) {
    const std::vector<std::string> environment = environment_with(plan.variables);
    std::vector<char*> argument_pointers = exec_words(plan.arguments);
    std::vector<char*> environment_pointers = exec_words(environment);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0)
        throw std::system_error(errno, std::generic_category(),
                                "cannot start a copy of this program");
    if (child == 0)
        become_copy(plan, argument_pointers.data(), environment_pointers.data(), parent);
    return child;
}

int wait_for(pid_t child) noexcept {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

std::vector<char*> exec_words(const std::vector<std::string>& words) {
    std::vector<char*> all;
    all.reserve(words.size() + 1);
    for (const std::string& word : words)
        all.push_back(const_cast<char*>(word.c_str()));
    all.push_back(nullptr);
    return all;
}

}  // namespace lockstep::os
