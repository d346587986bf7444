#include "lessons/grader/confine/confined_process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "lessons/grader/confine/claimed_user.hpp"
#include "lessons/grader/confine/keeper.hpp"
#include "src/os/child.hpp"
#include "src/os/environment.hpp"
#include "src/os/memory.hpp"

namespace lockstep::lessons {

namespace {

struct Signal {
    int number;
    const char* means;
};

constexpr std::array kSignals{
    Signal{SIGSEGV,
           "segmentation fault: it used memory that it does not own, or its stack "
           "overflowed"},
    Signal{SIGABRT,
           "abort: an uncaught exception, a failed assertion, or memory that was freed "
           "twice or written past its end"},
    Signal{SIGFPE, "an impossible whole-number operation, such as a division by zero"},
    Signal{
        SIGILL,
        "an instruction that does not exist: often a function that ends without return"},
    Signal{SIGTRAP, "a trap: often a function that ends without return"},
    Signal{SIGBUS, "bus error: it used memory that does not exist"},
    Signal{SIGSYS, "a system call that it may not make"},
    Signal{SIGPIPE, "it wrote to a closed pipe or socket"},
    Signal{SIGKILL,
           "sent from outside the program: perhaps the machine had no memory left"},
};

std::string signal_sentence(int number) {
    const auto* known = std::find_if(kSignals.begin(), kSignals.end(),
                                     [=](const Signal& s) { return s.number == number; });
    if (known == kSignals.end()) return fmt::format("was killed by signal {}", number);
    return fmt::format("was killed by signal {} ({})", number, known->means);
}

}  // namespace

std::string ending_sentence(const Ending& ending, const Confinement& confinement) {
    switch (ending.cause) {
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
        case EndedBy::outside:
        case EndedBy::signal:
            break;
    }
    return signal_sentence(ending.signal);
}

namespace {

using os::Clock;
using os::Descriptor;

/// The time in which the keeper must end all processes and report.
constexpr double kPatienceSeconds = 4;

[[noreturn]] void fail(int error, const std::string& what) {
    throw std::system_error(error, std::generic_category(), what);
}

Descriptor opened(int descriptor, const char* what) {
    if (descriptor < 0) fail(errno, what);
    return Descriptor(descriptor);
}

/// Returns the path of a program. If the program is in the folder, the path is relative,
/// because the program's user may not be able to enter the folders above.
std::string program_file(const std::string& name, const std::filesystem::path& folder) {
    if (name.find('/') != std::string::npos) {
        const auto inside = std::filesystem::path(name).lexically_relative(folder);
        const bool named =
            name.front() == '/' && !inside.empty() && *inside.begin() != "..";
        return named ? "./" + inside.string() : name;
    }
    std::string file = os::find_on_path(name);
    if (file.empty()) fail(ENOENT, "cannot start " + name);
    return file;
}

std::vector<std::string> environment(const ConfinedPlan& plan) {
    std::vector<std::string> all{"PATH=" + os::search_path(), "HOME=/nonexistent",
                                 "LANG=C.UTF-8", "TMPDIR=" + plan.folder.string()};
    all.insert(all.end(), plan.variables.begin(), plan.variables.end());
    return all;
}

std::string step_text(StartStep step, const ConfinedPlan& plan) {
    const std::string& program = plan.words.front();
    switch (step) {
        case StartStep::room:
            return "cannot shut in " + program;
        case StartStep::fence:
            return "cannot keep the files of others from " + program;
        case StartStep::filter:
            return "cannot filter the system calls of " + program;
        case StartStep::fork:
            return "cannot make a process for " + program;
        case StartStep::folder:
            return "cannot work in " + plan.folder.string();
        case StartStep::descriptors:
            return "cannot pass descriptors to " + program;
        case StartStep::user:
            return fmt::format("cannot run {} as user {}", program,
                               plan.confinement.user);
        case StartStep::limits:
            return "cannot set limits for " + program;
        case StartStep::program:
            break;
    }
    return "cannot start " + program;
}

View view_of(const ConfinedPlan& plan) {
    View view{system_libraries(), {}, installed_lockstep()};
    view.reads.insert(view.reads.end(), plan.reads.begin(), plan.reads.end());
    (plan.confinement.only_computes ? view.reads : view.writes).push_back(plan.folder);
    return view;
}

/// Returns whether the SIGKILL cannot be the program's own doing. The filter does not let
/// it send SIGKILL to itself or to its keeper. If the program ran for less time than its
/// limit of processor time, it cannot have reached this limit (for which the system
/// counts ticks). If it ran longer, the cause is outside only if the system killed
/// processes for lack of memory. A program that used much memory may itself have
/// exhausted the machine's memory, so the result is false for such a program.
bool is_from_outside(const KeeperReport& report, const Ending& ending,
                     const Confinement& confinement) {
    if (report.keeper_was_killed) return true;
    return ending.signal == SIGKILL &&
           (ending.wall_seconds < confinement.cpu_seconds || ending.memory_was_short) &&
           report.peak_bytes < confinement.memory_bytes / 2;
}

/// Sets what the report alone shows about the ending; finish() also looks at the output.
void read_report(const KeeperReport& report, const Confinement& confinement,
                 bool filtered, Ending& ending) {
    ending.cpu_seconds = report.cpu_seconds;
    if (WIFSIGNALED(report.status))
        ending.signal = WTERMSIG(report.status);
    else
        ending.exit_status = WEXITSTATUS(report.status);
    // The limit is counted in ticks, which may differ much from cpu_seconds.
    const bool used_up =
        ending.signal == SIGXCPU ||
        (ending.signal == SIGKILL && report.cpu_seconds > confinement.cpu_seconds / 2);
    if (report.over_wall)
        ending.cause = EndedBy::wall_limit;
    else if (report.requested)
        ending.cause = EndedBy::request;
    else if (filtered && is_from_outside(report, ending, confinement))
        ending.cause = EndedBy::outside;
    else if (used_up)
        ending.cause = EndedBy::cpu_limit;
    else if (ending.signal != 0)
        ending.cause = EndedBy::signal;
}

}  // namespace

ConfinedProcess::ConfinedProcess(const ConfinedPlan& plan)
    : confinement_(plan.confinement),
      killed_before_(os::killed_for_memory()),
      started_(Clock::now()) {
    output_ =
        opened(::memfd_create("output", MFD_CLOEXEC), "cannot make a file in memory");
    start(plan);
}

ConfinedProcess::~ConfinedProcess() {
    kill();
    try {
        wait(os::after(Clock::now(), kPatienceSeconds));
    } catch (const std::system_error&) {
    }
    if (keeper_ < 0) return;
    ::kill(keeper_, SIGKILL);
    os::wait_for(keeper_);
}

void ConfinedProcess::start(const ConfinedPlan& plan) {
    const std::string file = program_file(plan.words.front(), plan.folder);
    const std::vector<std::string> variables = environment(plan);
    const std::vector<char*> arguments = os::exec_words(plan.words);
    const std::vector<char*> variable_pointers = os::exec_words(variables);
    const Descriptor nothing =
        opened(::open("/dev/null", O_RDONLY | O_CLOEXEC), "/dev/null");
    os::Pipe failure = os::make_pipe();
    os::SocketPair channel = os::make_socket_pair(SOCK_SEQPACKET);
    if (!std::filesystem::is_directory(plan.folder))
        fail(ENOENT, step_text(StartStep::folder, plan));
    const View view = view_of(plan);
    const Room room(view);
    const bool has_room = Room::works();
    // A fence hides files by a rule for each neighbour, which takes time.
    const Fence fence(has_room ? View{view.reads, view.writes} : view);
    SystemCallFilter filter(file.c_str(), arguments.data());
    filtered_ = confinement_.only_computes && SystemCallFilter::works();
    const KeeperPlan keeper_plan{
        .file = file.c_str(),
        .arguments = arguments.data(),
        .environment = variable_pointers.data(),
        .folder = plan.folder.c_str(),
        .nothing = nothing.number(),
        .output = output_.number(),
        .given = plan.given,
        .failure = failure.writing.number(),
        .channel = channel.theirs.number(),
        .deadline = os::after(started_, confinement_.wall_seconds),
        .limits = limits_of(confinement_),
        .user = confinement_.user,
        .changes_user = ClaimedUser::works(),
        .room = has_room ? &room : nullptr,
        .fence = &fence,
        .filter = filtered_ ? &filter : nullptr};

    keeper_ = has_room ? Room::fork() : ::fork();
    if (keeper_ < 0) fail(errno, step_text(StartStep::fork, plan));
    if (keeper_ == 0) keep(keeper_plan);
    channel_ = std::move(channel.ours);
    channel.theirs.close();
    failure.writing.close();
    StartFailure failed;
    if (os::read_some(failure.reading.number(), &failed, sizeof failed) != sizeof failed)
        return;
    channel_.close();
    os::wait_for(keeper_);
    const std::string what = step_text(failed.step, plan);
    if (failed.step == StartStep::program) throw CannotRun(failed.error, what);
    fail(failed.error, what);
}

void ConfinedProcess::kill() noexcept {
    if (keeper_ >= 0) ::shutdown(channel_.number(), SHUT_WR);
}

std::optional<Ending> ConfinedProcess::wait(Clock::time_point deadline) {
    if (ending_) return ending_;
    pollfd watched{channel_.number(), POLLIN, 0};
    while (::poll(&watched, 1, os::milliseconds_until(deadline)) <= 0)
        if (Clock::now() >= deadline) return std::nullopt;
    KeeperReport report;
    const ssize_t got = ::recv(channel_.number(), &report, sizeof report, 0);
    if (got < 0 && errno == EINTR) return wait(deadline);
    // If there is no report, someone killed the keeper, and the program died with it.
    if (got != sizeof report) report = {.status = SIGKILL, .keeper_was_killed = true};
    Ending ending;
    ending.wall_seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    ending.memory_was_short = os::killed_for_memory() > killed_before_;
    read_report(report, confinement_, filtered_, ending);
    finish(ending);
    return ending_;
}

std::optional<Activity> ConfinedProcess::activity() const {
    const std::optional<pid_t> program = keeper_ < 0 ? std::nullopt : child_of(keeper_);
    return program ? activity_of(*program) : std::nullopt;
}

void ConfinedProcess::finish(const Ending& ending) {
    ending_ = ending;
    if (ending.signal == SIGABRT && ending.cause == EndedBy::signal &&
        output_end().find("std::bad_alloc") != std::string::npos)
        ending_->cause = EndedBy::memory_limit;
    os::wait_for(std::exchange(keeper_, -1));
}

std::string ConfinedProcess::output(std::size_t most_bytes) const {
    std::string text(most_bytes, '\0');
    const ssize_t got = ::pread(output_.number(), text.data(), text.size(), 0);
    text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return text;
}

std::string ConfinedProcess::output_end() const {
    std::array<char, 1024> text;
    struct stat file = {};
    ::fstat(output_.number(), &file);
    const off_t start = std::max<off_t>(0, file.st_size - off_t{text.size()});
    const ssize_t got = ::pread(output_.number(), text.data(), text.size(), start);
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

namespace {

namespace fs = std::filesystem;

/// Returns the folder and everything in it; links are not followed.
std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> all{folder};
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
        all.push_back(entry.path());
    return all;
}

void give(const fs::path& folder, uid_t user, gid_t group) {
    for (const fs::path& entry : entries(folder))
        if (::lchown(entry.c_str(), user, group) != 0)
            throw std::system_error(errno, std::generic_category(),
                                    "cannot give away " + entry.string());
}

/// Lets the group enter folders, read files and run programs; other users may do nothing.
void open_to_group(const fs::path& folder) {
    for (const fs::path& entry : entries(folder)) {
        const fs::file_status status = fs::symlink_status(entry);
        const bool runs =
            fs::is_directory(status) ||
            (status.permissions() & fs::perms::owner_exec) != fs::perms::none;
        const fs::perms mode{runs ? 0750U : 0640U};
        if (fs::is_directory(status) || fs::is_regular_file(status))
            fs::permissions(entry, mode);
    }
}

}  // namespace

void hand_over(const fs::path& folder, unsigned user) {
    if (ClaimedUser::works()) give(folder, user, user);
}

void take_back(const fs::path& folder, unsigned user) {
    if (!ClaimedUser::works()) return;
    give(folder, 0, user);
    open_to_group(folder);
}

}  // namespace lockstep::lessons
