#pragma once

#include <array>
#include <sys/syscall.h>

namespace lockstep::lessons {

/// Calls that a program may make whatever their arguments: the most frequent first. Some
/// are there on older architectures alone.
constexpr std::array kAllowedCalls{
    // What is open.
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_preadv,
    SYS_pwritev,
    SYS_recvfrom,
    SYS_shutdown,
    SYS_lseek,
    SYS_close,
    SYS_dup,
    SYS_dup3,
    SYS_ppoll,
    SYS_pselect6,
    SYS_fadvise64,
    // Memory.
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_brk,
    // Time, and waiting.
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_times,
    SYS_getrusage,
    SYS_setitimer,
    SYS_getitimer,
    SYS_futex,
    SYS_sched_yield,
    SYS_restart_syscall,
    // Itself, and the machine.
    SYS_getpid,
    SYS_gettid,
    SYS_getppid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getrandom,
    SYS_uname,
    SYS_sysinfo,
    SYS_sched_getaffinity,
    SYS_getcpu,
    SYS_set_tid_address,
    SYS_set_robust_list,
    SYS_exit,
    SYS_exit_group,
    // Its own signals.
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_rt_sigtimedwait,
    SYS_rt_sigsuspend,
    // Looking for files.
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_faccessat,
    SYS_readlinkat,
    SYS_getcwd,
#ifdef SYS_faccessat2
    SYS_faccessat2,
#endif
#ifdef SYS_rseq
    SYS_rseq,
#endif
#ifdef __x86_64__
    SYS_arch_prctl,
    SYS_getrlimit,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_dup2,
    SYS_poll,
    SYS_select,
    SYS_pause,
    SYS_alarm,
    SYS_time,
    SYS_getpgrp,
#endif
};

/// Calls that the C library makes in an older way where they do not exist. (Numbers are
/// the same on all architectures; headers may be older than the system.)
constexpr std::array kAbsentCalls{435L /* clone3 */, 437L /* openat2 */};

/// Calls that came later than the lists above do not exist either.
constexpr long kLastKnownCall = 450;

}  // namespace lockstep::lessons
