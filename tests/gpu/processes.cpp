#include "tests/gpu/processes.hpp"

#include <array>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "src/os/child.hpp"
#include "src/os/deadline.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep::gpu {

namespace {

using os::Clock;
using os::Descriptor;

/// A pipe from the child: its result, or its standard error.
struct Stream {
    Descriptor end;
    std::string* text;
};

[[noreturn]] void run_child(int number, const std::function<std::string(int)>& program,
                            int said, int errors) {
    dup2(errors, STDERR_FILENO);
    std::string text;
    int status = 0;
    try {
        text = program(number);
    } catch (const RunStopped& stop) {
        const Failure& failure = stop.failure();
        text = fmt::format("rank {}, status {}: {}", failure.rank, failure.status,
                           stop.what());
        status = failure.status;
    } catch (const std::exception& error) {
        text = error.what();
        status = 99;
    }
    os::write_all(said, text, "the test");
    _exit(status);
}

/// Reads until both streams of each process have ended; at the deadline kills all
/// processes that still run.
void drain(std::vector<Stream>& streams, const std::vector<pid_t>& children,
           Clock::time_point deadline) {
    for (size_t open = streams.size(); open > 0;) {
        std::vector<pollfd> waits;
        waits.reserve(streams.size());
        for (const Stream& stream : streams)
            waits.push_back({stream.end.number(), POLLIN, 0});
        if (poll(waits.data(), waits.size(), os::milliseconds_until(deadline)) == 0)
            for (const pid_t child : children)
                kill(child, SIGKILL);
        for (size_t i = 0; i < streams.size(); ++i) {
            if (!waits[i].revents) continue;
            std::array<char, 4096> buffer;
            const ssize_t got = read(waits[i].fd, buffer.data(), buffer.size());
            if (got > 0) {
                streams[i].text->append(buffer.data(), static_cast<size_t>(got));
            } else {
                streams[i].end.close();
                --open;
            }
        }
    }
}

}  // namespace

std::vector<ProcessEnd> run_processes(int count,
                                      const std::function<std::string(int)>& program,
                                      int seconds) {
    std::vector<ProcessEnd> ends(static_cast<size_t>(count));
    std::vector<Stream> streams;
    std::vector<pid_t> children;
    const auto start = Clock::now();
    for (int number = 0; number < count; ++number) {
        os::Pipe said = os::make_pipe();
        os::Pipe errors = os::make_pipe();
        const pid_t child = fork();
        if (child == 0)
            run_child(number, program, said.writing.number(), errors.writing.number());
        children.push_back(child);
        ProcessEnd& end = ends[static_cast<size_t>(number)];
        streams.push_back({std::move(said.reading), &end.said});
        streams.push_back({std::move(errors.reading), &end.errors});
    }
    std::vector<std::thread> waiters;
    for (size_t i = 0; i < children.size(); ++i)
        waiters.emplace_back([&, i] {
            const int status = os::wait_for(children[i]);
            ends[i].status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
            ends[i].seconds = std::chrono::duration<double>(Clock::now() - start).count();
        });
    drain(streams, children, start + std::chrono::seconds(seconds));
    for (std::thread& waiter : waiters)
        waiter.join();
    return ends;
}

std::string fresh_address() {
    static int used = 0;
    return fmt::format("unix:lockstep-test-{}-{}", getpid(), ++used);
}

std::string fresh_tcp_address(const std::string& host) {
    const Descriptor probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in where = {};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof where;
    auto* const address = reinterpret_cast<sockaddr*>(&where);
    if (bind(probe.number(), address, bytes) != 0 ||
        getsockname(probe.number(), address, &bytes) != 0)
        throw std::runtime_error("no free port");
    return fmt::format("{}:{}", host, ntohs(where.sin_port));
}

Placement place(int rank, int size, const std::string& address) {
    return {rank, size, rank, size, {address, kTestSecret}, "lockstep"};
}

std::unique_ptr<Control> join(int rank, int size, const std::string& address,
                              double timeout_seconds, double grace_seconds) {
    return Control::join(place(rank, size, address), {timeout_seconds, grace_seconds});
}

void sleep_seconds(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void kill_this_process() {
    kill(getpid(), SIGKILL);
    _exit(1);
}

}  // namespace lockstep::gpu
