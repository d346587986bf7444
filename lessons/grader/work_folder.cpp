#include "lessons/grader/work_folder.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "lessons/grader/confine/keeper.hpp"
#include "src/os/child.hpp"
#include "src/os/deadline.hpp"
#include "src/os/environment.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

constexpr const char* kKind = "grade-";

[[noreturn]] void fail(const std::string& what) {
    throw std::system_error(errno, std::generic_category(), what);
}

/// Opens a workspace's folder and locks it. Returns a closed descriptor if another grader
/// has the lock.
os::Descriptor lock(const fs::path& folder) {
    os::Descriptor opened(
        ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (opened.open() && ::flock(opened.number(), LOCK_EX | LOCK_NB) != 0) opened.close();
    return opened;
}

/// Returns whether the folder is so new that its grader may not have locked it yet.
bool is_young(const fs::path& folder) {
    constexpr std::chrono::seconds kYoung{60};
    std::error_code error;
    const auto written = fs::last_write_time(folder, error);
    return error || fs::file_time_type::clock::now() - written < kYoung;
}

/// Returns whether a grader of this user may have left the folder. For root any owner is
/// possible, because root's grader gives the folder to a student's program for a while.
bool is_ours(const fs::path& folder) {
    struct stat status = {};
    return ::lstat(folder.c_str(), &status) == 0 &&
           (status.st_uid == ::geteuid() || ::geteuid() == 0);
}

/// Removes the folders of graders whose remover was killed.
void sweep() {
    std::error_code error;
    std::vector<fs::path> left;
    for (fs::directory_iterator each(os::temporary_place(), error), end;
         !error && each != end; each.increment(error))
        if (each->path().filename().string().starts_with(std::string("lockstep-") +
                                                         kKind))
            left.push_back(each->path());
    for (const fs::path& folder : left)
        if (is_ours(folder) && !is_young(folder) && lock(folder).open())
            fs::remove_all(folder, error);
}

/// While this object lives, no signal ends this process. A process that it forks
/// meanwhile inherits this protection.
class NoSignals {
  public:
    NoSignals() {
        sigset_t all;
        sigfillset(&all);
        ::sigprocmask(SIG_SETMASK, &all, &before_);
    }
    ~NoSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
    NoSignals(const NoSignals&) = delete;
    NoSignals& operator=(const NoSignals&) = delete;

  private:
    sigset_t before_ = {};
};

/// Removes the folder once all copies of the pipe's other end are closed. Tries again for
/// a while, because processes in the folder may need a moment to end.
[[noreturn]] void remove_when_left(const fs::path& folder, int descriptor) noexcept {
    ::setsid();
    ::dup2(descriptor, 0);
    close_from(1);
    char nothing = 0;
    while (os::read_some(0, &nothing, 1) > 0) {
    }
    constexpr double kRemovalSeconds = 10;
    const auto deadline = os::after(os::Clock::now(), kRemovalSeconds);
    std::error_code error;
    while (fs::remove_all(folder, error), error && os::Clock::now() < deadline)
        ::usleep(10'000);
    ::_exit(0);
}

}  // namespace

WorkFolder::WorkFolder() {
    sweep();
    os::Pipe pipe = os::make_pipe();
    {
        const NoSignals no_signals;
        path_ = fs::canonical(os::make_temporary_folder(kKind));
        remover_ = ::fork();
        if (remover_ == 0) {
            pipe.writing.close();
            remove_when_left(path_, pipe.reading.number());
        }
    }
    held_ = std::move(pipe.writing);
    if (remover_ < 0) {
        const int error = errno;
        std::error_code ignored;
        fs::remove_all(path_, ignored);
        errno = error;
        fail("cannot make a process that removes " + path_.string());
    }
    lock_ = lock(path_);
    if (!lock_.open()) fail("cannot lock " + path_.string());
}

WorkFolder::~WorkFolder() {
    held_.close();
    os::wait_for(remover_);
    std::error_code ignored;
    fs::remove_all(path_, ignored);  // the remover may have been killed
}

}  // namespace lockstep::lessons
