#include "lessons/grader/judging_process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <new>
#include <optional>
#include <string_view>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/grader/task_run.hpp"
#include "src/core/require.hpp"
#include "src/os/child.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::string_view kCouldNot = "the grader could not judge this: ";

/// `spent` is a judgement by a process that has no memory left, and must end.
enum class Kind : char { judgement, spent, missing_error };

/// Sent as four messages: first the kind and the mark, then the texts.
struct Answer {
    Kind kind = Kind::judgement;
    Judgement judgement{};
};

void send_answer(Frames& line, const Answer& answer) {
    constexpr std::size_t kMostText = 1 << 20;  // more than reports show
    const Judgement& judgement = answer.judgement;
    const std::array<char, 2> head{static_cast<char>(answer.kind),
                                   static_cast<char>(judgement.mark)};
    bool sent = line.send({head.data(), head.size()});
    for (const std::string_view text :
         {judgement.asked, judgement.measured, judgement.said})
        sent = sent && line.send(text.substr(0, kMostText));
    if (!sent) ::_exit(0);
}

std::optional<Answer> receive_answer(Frames& line, Frames::Clock::time_point deadline) {
    std::array<std::string, 4> parts;
    for (std::string& part : parts) {
        std::optional<std::string> message = line.receive(deadline);
        if (!message) return std::nullopt;
        part = std::move(*message);
    }
    const auto& [head, asked, measured, said] = parts;
    return Answer{static_cast<Kind>(head.at(0)),
                  {static_cast<Mark>(head.at(1)), asked, measured, said}};
}

std::string_view bytes_of(const std::size_t& index) {
    return {reinterpret_cast<const char*>(&index), sizeof index};
}

Judgement failed(const std::string& said) {
    return {Mark::failed, "", "", said};
}

Answer answer_of(const JudgingProcess::Work& work, std::size_t index) {
    try {
        return {Kind::judgement, work(index)};
    } catch (const MissingError& error) {
        return {Kind::missing_error, failed(error.what())};
    } catch (const std::system_error& error) {
        return {Kind::missing_error, failed(error.what())};
    } catch (const GradingError& error) {
        return {Kind::missing_error,
                failed(std::string("the grading itself has a mistake: ") + error.what())};
    } catch (const std::bad_alloc&) {
        return {Kind::spent, failed(std::string(kCouldNot) +
                                    "it asks the simulator for too much memory")};
    } catch (const std::exception& error) {
        return {Kind::judgement, failed(std::string(kCouldNot) + error.what())};
    }
}

Judgement no_time() {
    return {Mark::not_judged, "", "", "the time for grading was over"};
}

std::string ending_text(int status) {
    if (!WIFSIGNALED(status))
        return fmt::format("itself (exit status {})", WEXITSTATUS(status));
    return fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
}

std::int64_t address_space() {
    std::int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * ::sysconf(_SC_PAGESIZE);
}

void limit_memory(std::int64_t bytes) {
    rlimit limit = {};
    ::getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur =
        std::min(limit.rlim_max, static_cast<rlim_t>(address_space() + bytes));
    ::setrlimit(RLIMIT_AS, &limit);
}

}  // namespace

JudgingProcess::~JudgingProcess() {
    if (process_ >= 0) end();
}

void JudgingProcess::start() {
    os::SocketPair line = os::make_socket_pair(SOCK_STREAM);
    socket_ = std::move(line.ours);
    const os::Descriptor theirs = std::move(line.theirs);
    const pid_t parent = ::getpid();
    process_ = ::fork();
    if (process_ < 0)
        throw std::system_error(errno, std::generic_category(),
                                "cannot make a process to judge in");
    if (process_ == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(0);
        socket_.close();
        serve(theirs.number());
    }
    line_ = Frames(socket_.number());
}

void JudgingProcess::serve(int descriptor) const noexcept {
    limit_memory(limits_.memory_bytes);
    Frames line(descriptor);
    while (const std::optional<std::string> message = line.receive()) {
        std::size_t index = 0;
        std::memcpy(&index, message->data(), sizeof index);
        const Answer answer = answer_of(work_, index);
        send_answer(line, answer);
    }
    ::_exit(0);
}

Judgement JudgingProcess::judge(std::size_t index) {
    const auto begun = Clock::now();
    if (begun >= limits_.deadline) return no_time();
    try {
        if (process_ < 0) start();
    } catch (const std::system_error& error) {
        throw MissingError(error.what());
    }
    const auto deadline = std::min(limits_.deadline, begun + limits_.longest);
    std::optional<Answer> answer;
    if (line_.send(bytes_of(index), deadline)) answer = receive_answer(line_, deadline);
    if (!answer) return judgement_without_answer();
    if (answer->kind == Kind::spent) end();
    if (answer->kind == Kind::missing_error) throw MissingError(answer->judgement.said);
    return answer->judgement;
}

Judgement JudgingProcess::judgement_without_answer() {
    const bool late = line_.end() == Frames::End::late;
    const int status = end();
    if (!late && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        throw MissingError(
            "the judging process was killed: perhaps this machine had no memory left");
    if (!late)
        return failed(
            fmt::format("{}the simulator ended by {}", kCouldNot, ending_text(status)));
    if (Clock::now() >= limits_.deadline) return no_time();
    return failed(fmt::format("{}it took more than {:.3g} s", kCouldNot,
                              std::chrono::duration<double>(limits_.longest).count()));
}

int JudgingProcess::end() {
    ::kill(process_, SIGKILL);
    const int status = os::wait_for(process_);
    process_ = -1;
    socket_.close();
    return status;
}

}  // namespace lockstep::lessons
