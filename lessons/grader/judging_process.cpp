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

#include "lessons/grader/confine/activity.hpp"
#include "lessons/grader/task_run.hpp"
#include "src/core/require.hpp"
#include "src/os/child.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::string_view kCouldNot = "the grader could not judge this: ";

/// `spent` is a judgement by a process that has no memory left, and must end.
enum class Kind : char { judgement, spent, missing_error };

std::string_view bytes_of(const std::size_t& index) {
    return {reinterpret_cast<const char*>(&index), sizeof index};
}

struct Answer {
    Kind kind = Kind::judgement;
    Judgement judgement{};
};

/// An answer is one message: the kind, the mark, and three texts, each after its length.
void send_answer(Frames& line, const Answer& answer) {
    constexpr std::size_t kMostText = 1 << 20;  // more than reports show
    const Judgement& judgement = answer.judgement;
    std::string message{static_cast<char>(answer.kind),
                        static_cast<char>(judgement.mark)};
    for (const std::string_view whole :
         {judgement.asked, judgement.measured, judgement.said}) {
        const std::string_view text = whole.substr(0, kMostText);
        message += bytes_of(text.size());
        message += text;
    }
    if (!line.send(message)) ::_exit(0);
}

/// Returns nothing if no answer comes before the deadline; the next call goes on.
std::optional<Answer> receive_answer(Frames& line, Frames::Clock::time_point deadline) {
    const std::optional<std::string> message = line.receive(deadline);
    if (!message) return std::nullopt;
    std::string_view rest(*message);
    Answer answer{static_cast<Kind>(rest.at(0)), {static_cast<Mark>(rest.at(1))}};
    rest.remove_prefix(2);
    for (std::string* const text :
         {&answer.judgement.asked, &answer.judgement.measured, &answer.judgement.said}) {
        std::size_t length = 0;
        std::memcpy(&length, rest.data(), sizeof length);
        *text = rest.substr(sizeof length, length);
        rest.remove_prefix(sizeof length + length);
    }
    return answer;
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
    if (used_seconds_ > limits_.all_seconds)
        return failed(
            fmt::format("the criteria before kept the grader busy for {:g} s, "
                        "more than all together may",
                        limits_.all_seconds));
    try {
        if (process_ < 0) start();
    } catch (const std::system_error& error) {
        throw MissingError(error.what());
    }
    const double before = processor_seconds_of(process_);
    double used = 0;
    std::optional<Answer> answer;
    if (line_.send(bytes_of(index), limits_.deadline))
        while (!(answer = receive_answer(line_, Clock::now() + kGlance)) &&
               line_.end() == Frames::End::late && used <= limits_.one_seconds &&
               Clock::now() < limits_.deadline)
            used = processor_seconds_of(process_) - before;
    used_seconds_ += processor_seconds_of(process_) - before;
    if (!answer) return judgement_without_answer(used);
    if (answer->kind == Kind::spent) end();
    if (answer->kind == Kind::missing_error) throw MissingError(answer->judgement.said);
    return answer->judgement;
}

Judgement JudgingProcess::judgement_without_answer(double used) {
    const bool late = line_.end() == Frames::End::late;
    const int status = end();
    if (!late && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        throw MissingError(
            "the judging process was killed: perhaps this machine had no memory left");
    if (!late)
        return failed(
            fmt::format("{}the simulator ended by {}", kCouldNot, ending_text(status)));
    if (used <= limits_.one_seconds)
        throw MissingError(
            "the time for grading is over: this machine was too slow or too busy");
    return failed(fmt::format("{}it kept the grader busy for more than {:g} s", kCouldNot,
                              limits_.one_seconds));
}

int JudgingProcess::end() {
    ::kill(process_, SIGKILL);
    const int status = os::wait_for(process_);
    process_ = -1;
    socket_.close();
    return status;
}

}  // namespace lockstep::lessons
