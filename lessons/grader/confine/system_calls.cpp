#include "lessons/grader/confine/system_calls.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <initializer_list>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/os/child.hpp"

namespace lockstep::lessons {

namespace {

/// Calls that are allowed with any arguments, the most frequent ones first. Some exist
/// only on older architectures.
constexpr std::array kAllowedCalls{
    // Open files.
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_preadv,
    SYS_recvfrom,
    SYS_lseek,
    SYS_close,
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
    // Time and waiting.
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_times,
    SYS_getrusage,
    SYS_futex,
    SYS_sched_yield,
    SYS_restart_syscall,
    // The process itself and the machine.
    SYS_getpid,
    SYS_gettid,
    SYS_getppid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getrandom,
    SYS_uname,
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
    // Finding files.
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
    SYS_poll,
    SYS_select,
    SYS_pause,
    SYS_time,
    SYS_getpgrp,
#endif
};

/// Calls that report ENOSYS, so that the C library uses older calls. The numbers are the
/// same on all architectures; headers may be older than the system.
constexpr std::array kAbsentCalls{435L /* clone3 */, 437L /* openat2 */};

/// Calls that are newer than these lists also report ENOSYS.
constexpr long kLastKnownCall = 450;

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = 0;
#endif

constexpr std::uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
constexpr std::uint32_t kAbsent = SECCOMP_RET_ERRNO | ENOSYS;

/// Returns the offset of an argument's low half, on little-endian machines.
constexpr std::uint32_t low_half(int argument) {
    return static_cast<std::uint32_t>(offsetof(seccomp_data, args) +
                                      sizeof(std::uint64_t) *
                                          static_cast<std::size_t>(argument));
}
constexpr std::uint32_t high_half(int argument) {
    return low_half(argument) + 4;
}

/// Writes a filter's code. A check that fails returns kRefuse; a call that passes all its
/// checks is allowed.
class Code {
  public:
    explicit Code(std::vector<sock_filter>& code) : code_(code) {}

    void load(std::uint32_t offset) { add(BPF_LD | BPF_W | BPF_ABS, offset); }
    void answer(std::uint32_t answer) { add(BPF_RET | BPF_K, answer); }
    /// Continues if the loaded word is (or is not) `value`; otherwise returns the answer.
    void unless(std::uint32_t value, std::uint32_t otherwise) {
        add(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
        answer(otherwise);
    }
    void when(std::uint32_t value, std::uint32_t then) {
        add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
        answer(then);
    }
    void when_above(std::uint32_t value, std::uint32_t then) {
        add(BPF_JMP | BPF_JGT | BPF_K, value, 0, 1);
        answer(then);
    }

    /// Begins a call that is allowed if all checks before end_call() pass.
    void begin_call(long number) {
        call_ = code_.size();
        add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number));
    }
    void end_call() {
        answer(SECCOMP_RET_ALLOW);
        code_[call_].jf = static_cast<std::uint8_t>(code_.size() - call_ - 1);
    }

    void pointer(int argument, const void* value) {
        const auto bits =
            static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(value));
        load(low_half(argument));
        unless(static_cast<std::uint32_t>(bits), kRefuse);
        load(high_half(argument));
        unless(static_cast<std::uint32_t>(bits >> 32), kRefuse);
    }
    void word(int argument, std::uint32_t value) {
        load(low_half(argument));
        unless(value, kRefuse);
    }
    void not_word(int argument, std::uint32_t value) {
        load(low_half(argument));
        when(value, kRefuse);
    }
    void no_bits(int argument, std::uint32_t bits) {
        load(low_half(argument));
        add(BPF_ALU | BPF_AND | BPF_K, bits);
        unless(0, kRefuse);
    }
    void one_of(int argument, std::initializer_list<unsigned> values) {
        load(low_half(argument));
        for (const unsigned value : values)
            when(value, SECCOMP_RET_ALLOW);
        answer(kRefuse);
    }

  private:
    void add(int operation, std::uint32_t value, std::uint8_t if_true = 0,
             std::uint8_t if_false = 0) {
        code_.push_back(
            {static_cast<std::uint16_t>(operation), if_true, if_false, value});
    }

    std::vector<sock_filter>& code_;
    std::size_t call_ = 0;
};

void begin(Code& code) {
    code.load(offsetof(seccomp_data, arch));
    code.unless(kArchitecture, SECCOMP_RET_KILL_PROCESS);
    code.load(offsetof(seccomp_data, nr));
    // This includes calls of x32, which have a high bit.
    code.when_above(kLastKnownCall, kAbsent);
}

void allow_reading_files(Code& code) {
    constexpr std::uint32_t kWrites =
        O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY);
    code.begin_call(SYS_openat);
    code.no_bits(2, kWrites);
    code.end_call();
#ifdef SYS_open
    code.begin_call(SYS_open);
    code.no_bits(1, kWrites);
    code.end_call();
#endif
}

/// Leaves out F_SETOWN and FIOASYNC, which can send signals to other processes.
void allow_asking_descriptors(Code& code) {
    code.begin_call(SYS_fcntl);
    code.one_of(1, {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL});
    code.end_call();
    code.begin_call(SYS_ioctl);
    code.one_of(1, {TCGETS, TIOCGWINSZ, FIONREAD});
    code.end_call();
    // Allowed only without an address, that is, on a connected socket.
    code.begin_call(SYS_sendto);
    code.pointer(4, nullptr);
    code.end_call();
}

}  // namespace

SystemCallFilter::SystemCallFilter(const char* file, char* const* arguments) {
    if (kArchitecture == 0) return;
    Code code(code_);
    begin(code);
    for (const long call : kAllowedCalls)
        code.when(static_cast<std::uint32_t>(call), SECCOMP_RET_ALLOW);
    for (const long call : kAbsentCalls)
        code.when(static_cast<std::uint32_t>(call), kAbsent);
    allow_reading_files(code);
    allow_asking_descriptors(code);
    code.begin_call(SYS_execve);
    code.pointer(0, file);
    code.pointer(1, arguments);
    code.end_call();
    // Reading its own limits.
    code.begin_call(SYS_prlimit64);
    code.word(0, 0);
    code.pointer(2, nullptr);
    code.end_call();
    // For abort() and raise().
    for (const long call : {SYS_tgkill, SYS_kill}) {
        code.begin_call(call);
        code.load(low_half(0));
        own_process_.push_back(code_.size());
        code.unless(0, kRefuse);
        code.not_word(call == SYS_kill ? 1 : 2, SIGKILL);
        code.end_call();
    }
    code.answer(kRefuse);
}

bool SystemCallFilter::install() noexcept {
    if (code_.empty()) return false;
    for (const std::size_t at : own_process_)
        code_[at].k = static_cast<std::uint32_t>(::getpid());
    const sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

bool SystemCallFilter::works() {
    static const bool works = [] {
        SystemCallFilter filter(nullptr, nullptr);
        const pid_t child = ::fork();
        if (child == 0) {
            const bool holds = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                               filter.install() &&
                               ::socket(AF_UNIX, SOCK_STREAM, 0) < 0 && errno == EPERM;
            ::_exit(holds ? 0 : 1);
        }
        if (child < 0) return false;
        const int status = os::wait_for(child);
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }();
    return works;
}

}  // namespace lockstep::lessons
