#pragma once

#include <cstddef>
#include <linux/filter.h>
#include <vector>

namespace lockstep::lessons {

/// A seccomp filter under which a program can start (its loader reads libraries), then
/// compute, ask for memory and for the time, sleep, read files, read and write what is
/// open, and end. Refused with EPERM, or ENOSYS where the C library then tries an older
/// call: processes and threads, opening files to write, changing files and folders,
/// sockets, signals to others, SIGKILL to itself, ptrace and other processes' memory,
/// changing limits, and whatever is not listed. A call of another architecture ends the
/// program.
///
/// For x86_64 and aarch64; elsewhere install() does nothing and says so.
class SystemCallFilter {
  public:
    /// For a program that execve(file, arguments, …) starts: with these very pointers,
    /// execve is allowed. Costs about 300 instructions.
    SystemCallFilter(const char* file, char* const* arguments);

    /// Puts the filter on the calling process, which must have set no_new_privs. May be
    /// called between fork and exec. False if the system refuses.
    bool install() noexcept;

    /// Returns whether a filter holds here. The first call tries one, in a child.
    static bool works();

  private:
    std::vector<sock_filter> code_;
    std::vector<std::size_t> own_process_;  ///< instructions that compare with its id
};

}  // namespace lockstep::lessons
