#pragma once

#include <cstddef>
#include <linux/filter.h>
#include <vector>

namespace lockstep::lessons {

/// A seccomp filter. Under this filter a program can start (its loader reads libraries),
/// compute, ask for memory and for the time, sleep, read files, read and write open
/// descriptors, and end.
///
/// It refuses the following with EPERM, or with ENOSYS if the C library then tries an
/// older call: making processes and threads, opening files to write, changing files and
/// folders, sockets, signals to others, SIGKILL to itself, ptrace and other processes'
/// memory, changing limits, and every call that is not listed. A call of another
/// architecture ends the program.
///
/// For x86_64 and aarch64; elsewhere install() does nothing and returns false.
class SystemCallFilter {
  public:
    /// For the program that execve(file, arguments, …) starts; execve is allowed only
    /// with these same pointers. The filter has about 300 instructions.
    SystemCallFilter(const char* file, char* const* arguments);

    /// Puts the filter on the calling process, which must have set no_new_privs. May be
    /// called between fork and exec. Returns false if the system refuses.
    bool install() noexcept;

    /// Returns whether a filter works here. The first call tries one, in a child.
    static bool works();

  private:
    std::vector<sock_filter> code_;
    std::vector<std::size_t> own_process_;  ///< places in code_ that compare a process id
};

}  // namespace lockstep::lessons
