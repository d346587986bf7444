#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>
#include <system_error>
#include <vector>

#include "lessons/grader/confine/activity.hpp"
#include "src/os/deadline.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

/// The user and group of programs if ClaimedUser::works() and no other user is chosen.
constexpr unsigned kNobody = 65534;

/// The limits of a program that is not trusted.
struct Confinement {
    /// If ClaimedUser::works(), the program runs with this number as user and group, so
    /// that it cannot reach root's files. Otherwise this has no effect.
    unsigned user = kNobody;
    /// Processor time of each process, rounded up to whole seconds. A program that
    /// ignores SIGXCPU gets one second more.
    double cpu_seconds = 10;
    double wall_seconds = 30;
    std::int64_t memory_bytes = 512 << 20;  ///< address space of each process
    /// The maximum size of each file that the program writes, and of its output. Beyond
    /// that, write() fails and the data is lost; nothing else happens.
    std::int64_t file_bytes = 1 << 20;
    /// About how many processes and threads the program can start; 0 for none. The number
    /// is not exact, because the system counts all processes of the user.
    int processes = 0;
    int files = 64;  ///< open descriptors
    /// If true, and if the system can filter calls, the program can only start and
    /// compute (SystemCallFilter). Otherwise it can run programs, and change files in its
    /// folder. It can change files elsewhere only if the system has neither a Fence nor a
    /// Room.
    bool only_computes = true;
};

enum class EndedBy : std::uint8_t {
    itself,        ///< it returned, or called exit()
    signal,        ///< a crash, or abort()
    cpu_limit,     ///< it used up its processor time
    wall_limit,    ///< it ran too long
    memory_limit,  ///< it did not catch a std::bad_alloc
    request,       ///< kill() was called
    /// A SIGKILL that neither the limits nor the program itself can have caused: the
    /// machine had no memory left, or someone killed the program.
    outside
};

/// How a confined program ended.
struct Ending {
    EndedBy cause = EndedBy::itself;
    int exit_status = 0;     ///< if it ended by itself
    int signal = 0;          ///< the signal that ended it; otherwise 0
    double cpu_seconds = 0;  ///< of the program, and of children that it waited for
    double wall_seconds = 0;
    bool memory_was_short = false;  ///< the system killed processes for lack of memory

    bool succeeded() const { return cause == EndedBy::itself && exit_status == 0; }
};

/// Returns the text that follows "Your program" in a report: "was stopped after 10 s of
/// processor time".
std::string ending_sentence(const Ending& ending, const Confinement& confinement);

/// Thrown if the system cannot run an existing file, because the file is not a program,
/// or because its loader is missing.
class CannotRun : public std::system_error {
  public:
    CannotRun(int error, const std::string& what)
        : std::system_error(error, std::generic_category(), what) {}
};

struct ConfinedPlan {
    /// The program, then its arguments. A name without '/' is searched on the PATH; a
    /// relative path starts at the folder.
    std::vector<std::string> words;
    std::filesystem::path folder = {};  ///< its working folder; absolute, without links
    Confinement confinement = {};
    /// Paths that the program may read, besides its folder and the system's libraries;
    /// absolute, without links. If there is a Fence or a Room, it sees no other files.
    std::vector<std::filesystem::path> reads = {};
    /// A descriptor that the program gets as number 3, such as one end of a socketpair;
    /// -1 for none. The caller keeps it, and closes it once the program has started.
    int given = -1;
    /// "NAME=value", in addition to PATH, HOME, LANG and TMPDIR (the folder). The program
    /// has no other variables.
    std::vector<std::string> variables = {};
};

/// A running program that is not trusted, such as a student's. It runs within its limits
/// and in its own session. It reads nothing from stdin. Only descriptors 0 to 2 are open,
/// and 3 if one is given. All processes that the program makes end with it, or with the
/// process that made this object. Its output is kept in memory. Not thread-safe.
class ConfinedProcess {
  public:
    /// Starts the program; returns once it runs. Throws std::system_error with the step
    /// that failed, or CannotRun if the program itself cannot be run.
    explicit ConfinedProcess(const ConfinedPlan& plan);
    /// Ends it.
    ~ConfinedProcess();
    ConfinedProcess(const ConfinedProcess&) = delete;
    ConfinedProcess& operator=(const ConfinedProcess&) = delete;

    /// Asks the program to end; wait() reports the end a little later.
    void kill() noexcept;

    /// Returns how the program ended; nothing if it still runs at the deadline. The
    /// program's limits apply even if this is not called.
    std::optional<Ending> wait(os::Clock::time_point deadline = os::kNever);

    /// Returns what the program does at this moment; empty if it has ended or the system
    /// hides it.
    std::optional<Activity> activity() const;

    /// poll() finds this readable once wait() would return at once.
    int descriptor() const { return channel_.number(); }

    /// Returns the first bytes that the program has written so far to stdout and stderr,
    /// in the order of writing. They need not be text.
    std::string output(std::size_t most_bytes = 16384) const;

  private:
    void start(const ConfinedPlan& plan);
    void finish(const Ending& ending);
    std::string output_end() const;

    Confinement confinement_;
    bool filtered_ = false;       ///< the program has a SystemCallFilter
    std::int64_t killed_before_;  ///< os::killed_for_memory() at the start
    os::Clock::time_point started_;
    os::Descriptor output_;
    os::Descriptor channel_;
    pid_t keeper_ = -1;
    std::optional<Ending> ending_;
};

/// Lets programs of a user write in a folder and read its content. If
/// ClaimedUser::works(), gives the folder and its content to the user. Links are not
/// followed. Throws std::system_error.
void hand_over(const std::filesystem::path& folder, unsigned user);

/// Takes a folder and its content back. Then only root can write in the folder, and only
/// root and programs of that user can read its content. Otherwise works as hand_over().
void take_back(const std::filesystem::path& folder, unsigned user);

}  // namespace lockstep::lessons
