#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>
#include <system_error>
#include <vector>

#include "src/os/deadline.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

/// The user and group that programs have if this process is root, and no other is chosen.
constexpr unsigned kNobody = 65534;

/// The limits of a program that is not trusted.
struct Confinement {
    /// If this process is root, the program runs as user and group of this number, so
    /// that root's files are out of its reach.
    unsigned user = kNobody;
    /// Processor time, of each process that there is; counted in whole seconds, upwards,
    /// and one more for a program that ignores SIGXCPU.
    double cpu_seconds = 10;
    double wall_seconds = 30;
    std::int64_t memory_bytes = 512 << 20;  ///< address space of each process
    /// The longest file it can write; also how much it can print. What is more is lost:
    /// write() fails, nothing else happens.
    std::int64_t file_bytes = 1 << 20;
    /// Processes and threads that it can have beside its first, about: the system counts
    /// those of the user as a whole. 0: none.
    int processes = 0;
    int files = 64;  ///< open descriptors
    /// Only what a program needs to start and to compute (see SystemCallFilter), if the
    /// system can filter calls. Else it can run programs, and change files in its folder;
    /// elsewhere, only if the system has neither a Fence nor a Room.
    bool only_computes = true;
};

enum class EndedBy : std::uint8_t {
    itself,        ///< it returned, or called exit()
    signal,        ///< a crash, or abort()
    cpu_limit,     ///< it was stopped for its processor time
    wall_limit,    ///< it was stopped for the time that passed
    memory_limit,  ///< nobody caught its std::bad_alloc
    request,       ///< kill()
    /// SIGKILL, which neither its limits nor the program itself can have brought about:
    /// the machine had no memory left, or somebody killed it.
    outside
};

/// How a confined program ended.
struct Ending {
    EndedBy by = EndedBy::itself;
    int exit_status = 0;     ///< where it ended by itself
    int signal = 0;          ///< what ended it; else 0
    double cpu_seconds = 0;  ///< its own, and that of processes that it waited for
    double wall_seconds = 0;
    bool memory_was_short = false;  ///< the system killed processes for it meanwhile

    bool succeeded() const { return by == EndedBy::itself && exit_status == 0; }
};

/// Returns what a student reads after "Your program": "was stopped after 10 s of
/// processor time".
std::string ending_sentence(const Ending& ending, const Confinement& confinement);

/// The system refuses to run a program that is there: it is no program, or its loader is
/// not there.
class CannotRun : public std::system_error {
  public:
    CannotRun(int error, const std::string& what)
        : std::system_error(error, std::generic_category(), what) {}
};

struct ConfinedPlan {
    /// The program, then its arguments. A name without '/' is looked for on the PATH; a
    /// relative one starts at the folder.
    std::vector<std::string> words;
    std::filesystem::path folder = {};  ///< where it works; absolute, without links
    Confinement confinement = {};
    /// It may read these beside its folder and the system's libraries, absolute and
    /// without links; nothing else is there for it, where the system has a Fence or a
    /// Room.
    std::vector<std::filesystem::path> reads = {};
    /// The program finds it as descriptor 3, such as one end of a socketpair; -1:
    /// nothing. It stays the caller's, who closes it once the program has started.
    int given = -1;
    /// "NAME=value", beside PATH, HOME, LANG and TMPDIR (the folder): all that it has.
    std::vector<std::string> variables = {};
};

/// A program that is not trusted, such as a student's, while it runs: within its limits,
/// in a session of its own, with nothing to read, and nothing open but 0 to 2, and 3 if
/// one is given. No process that it made outlives it, nor the process that made this
/// object. What it prints goes to a file in memory. Not for several threads at once.
class ConfinedProcess {
  public:
    /// Starts it; returns once it runs. Throws std::system_error that says what failed;
    /// CannotRun if that is the program.
    explicit ConfinedProcess(const ConfinedPlan& plan);
    /// Ends it.
    ~ConfinedProcess();
    ConfinedProcess(const ConfinedProcess&) = delete;
    ConfinedProcess& operator=(const ConfinedProcess&) = delete;

    /// Asks for its end, which wait() finds a little later.
    void kill() noexcept;

    /// How it ended, once it has; nothing if it still runs at the deadline. Its own
    /// limits hold whether or not anybody waits.
    std::optional<Ending> wait(os::Clock::time_point deadline = os::kNever);

    /// poll() finds this readable once wait() would return at once.
    int descriptor() const { return channel_.number(); }

    /// The first bytes of what it printed so far, on stdout and stderr in the order of
    /// writing: any bytes, which need not be text.
    std::string output(std::size_t most_bytes = 16384) const;

  private:
    void start(const ConfinedPlan& plan);
    void finish(const Ending& ending);
    std::string output_end() const;

    Confinement confinement_;
    bool filtered_ = false;       ///< it has a SystemCallFilter
    std::int64_t killed_before_;  ///< by the system, for memory
    os::Clock::time_point started_;
    os::Descriptor output_;
    os::Descriptor channel_;
    pid_t keeper_ = -1;
    std::optional<Ending> ending_;
};

/// Lets programs of a user write in a folder, and read what is in it: gives it to them,
/// if this process is root. Links are not followed. Throws std::system_error.
void hand_over(const std::filesystem::path& folder, unsigned user);

/// Takes a folder back, and what is in it: programs of that user can read all and write
/// nothing, and other users' neither. As hand_over().
void take_back(const std::filesystem::path& folder, unsigned user);

}  // namespace lockstep::lessons
