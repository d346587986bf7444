"""Submissions to ring-all-reduce that attack the grader, or look like attacks, and their grades.

SUBMISSIONS maps names to submissions. Their sources are made from the reference's ring.cpp. In the
sources, the test replaces @OUTSIDE@, @NEIGHBOUR@, @REFERENCE@, @TEMPORARY@ and @GRADING@ by the
paths of files with a secret. It replaces @OWN@ by a text of the submission, and @RETURNED@ by the
number with which a rank says that it has returned.
"""

import os
from dataclasses import dataclass, field
from typing import Callable, Optional

SECRETS = ["OUTSIDE", "NEIGHBOUR", "REFERENCE", "TEMPORARY", "GRADING"]
FORGED = '{"score": 100, "earned": 100, "tests": [{"score": 100, "max_score": 100}]}'
ALL, NOTHING = 100, 0
WITHOUT_ALL_REDUCE = 70  # a1.3 has 30 points
NOT_SHOWN = "No such file or directory|Permission denied|file not found"


@dataclass
class Submission:
    earned: int
    ring: Callable[[str], str]  # changes the reference's ring.cpp
    says: str = "."             # a regular expression that must match in the report
    built: bool = True
    slow: bool = False          # whether it uses up a limit
    in_all_formats: bool = False
    prepare: Optional[Callable[[str], None]] = None  # called with the submission's folder
    files: dict = field(default_factory=dict)


HEADERS = r"""
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <limits>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <vector>
extern char** environ;
// Ends the function if the program got away with it.
[[maybe_unused]] static void refused(const char* what, long result) {
    if (result >= 0) throw std::runtime_error(std::string("it got ") + "away with " + what);
}
[[maybe_unused]] static std::string read_from(const char* path) {
    const int file = open(path, O_RDONLY);
    if (file < 0) return std::string("cannot read: ") + std::strerror(errno) + "; ";
    std::string text(100000, ' ');
    text.resize(std::max<ssize_t>(0, read(file, text.data(), text.size())));
    close(file);
    return text + "; ";
}
[[maybe_unused]] static void write_words(const std::vector<long long>& words) {
    (void)!write(3, words.data(), words.size() * sizeof words[0]);
}
"""
ONE = "if (rank.index() == 0) { %s }"  # the other ranks wait for rank 0
SIGNATURES = ["reduce_scatter(Rank& rank, const Tensor& buffer)",
              "all_gather(Rank& rank, const Tensor& buffer)",
              "all_reduce(Rank& rank, const Tensor& buffer)"]


def begins(code, functions=SIGNATURES):
    """Lets these functions begin with the code, and continue correctly."""
    def change(reference):
        for signature in functions:
            assert reference.count(f"void {signature} {{") == 1
            reference = reference.replace(f"void {signature} {{", f"void {signature} {{ {code}\n")
        return HEADERS + reference
    return change


def ends(code):
    """Lets all_reduce run only the code."""
    return begins(f"{code} return;", SIGNATURES[2:])


def starts(code):
    """Lets the file begin with the code."""
    return lambda reference: f"{HEADERS}{code}\n{reference}"


def refuses(*calls):
    """Lets all_reduce begin with calls that must fail, and continue correctly."""
    return begins("".join(f"refused({call.split('(')[0]!r}, {call});\n".replace("'", '"')
                          for call in calls), SIGNATURES[2:])


def numbered(*names):
    """Tries named system calls with harmful arguments. They must fail."""
    return refuses(*(f"syscall(SYS_{name}, {arguments})" for name, arguments in names))


def tells(*paths):
    """Lets each function throw the text that it could read."""
    return begins("throw std::runtime_error("
                  + " + ".join(f'read_from("{path}")' for path in paths) + ");")


def reads_none(*paths):
    """A submission that tries to read these files. The system must refuse each read."""
    refused = r"(cannot read: [^;]*;[^c]*){%d}" % len(paths)
    return Submission(NOTHING, tells(*paths), refused)


def source(make):
    """Returns a Submission.prepare that lets make(path) create ring.cpp anew."""
    def prepare(folder):
        path = os.path.join(folder, "ring.cpp")
        os.remove(path)
        make(path)
    return prepare


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(100 << 30)


def closed(path):
    with open(path, "w", encoding="utf-8") as file:
        file.write("int x;\n")
    os.chmod(path, 0)


def written(data):
    def write(path):
        with open(path, "wb") as file:
            file.write(data)
    return write


def fails(ring, says, **more):
    """A submission that cannot be built."""
    return Submission(NOTHING, ring, says, built=False, **more)


def same(reference):
    return reference


# Texts that could do harm if terminals, browsers, tables or XML do not read them as plain text.
TEXT = (r'"\x1b[2J\x1b]0;title\x07<script>alert(1)</script>&amp;]]><!-- =cmd|\'C\'!A0 \",\n,'
        r'\xe2\x80\xae gnp \xff\xfe \xed\xa0\x80 \xc0\x80 \r\b\x7f"')

IN_PROCESSES = {
    "exits before main": Submission(
        NOTHING, starts("static const int before = [] { std::exit(0); return 0; }();"),
        "exit status 0"),
    "exits before all else": Submission(
        NOTHING, starts("static void early(int, char**, char**) { _exit(0); }\n"
                        '__attribute__((section(".preinit_array"), used)) static void (*at)('
                        "int, char**, char**) = early;"), "exit status 0"),
    "loops before main": Submission(
        NOTHING, starts("static const int before = [] { for (volatile int i = 0;; ++i) {}"
                        " return 0; }();"), "processor time", slow=True),
    "loops, and takes no signal": Submission(
        WITHOUT_ALL_REDUCE, ends(ONE % "for (int i = 1; i < NSIG; ++i) signal(i, SIG_IGN);"
                                       " for (volatile int i = 0;; ++i) {}"),
        "processor time", slow=True),
    "sleeps": Submission(WITHOUT_ALL_REDUCE, ends(ONE % "for (;;) sleep(1000);"),
                         "it did nothing for 10 s", slow=True),
    "stops itself": Submission(WITHOUT_ALL_REDUCE, ends(ONE % "raise(SIGSTOP);"),
                               "it did nothing for 10 s", slow=True),
    "forks for ever": Submission(WITHOUT_ALL_REDUCE, ends(ONE % "for (;;) fork();"),
                                 "processor time", slow=True),
    "prints for ever": Submission(WITHOUT_ALL_REDUCE, ends(ONE % 'for (;;) std::puts("100");'),
                                  "processor time", slow=True),
    "has an alarm": Submission(
        WITHOUT_ALL_REDUCE, ends("itimerval soon{{0, 1000}, {0, 1000}};"
                                 "setitimer(ITIMER_REAL, &soon, nullptr); for (;;) pause();"),
        "it did nothing for 10 s", slow=True),
    "asks for all memory": Submission(
        WITHOUT_ALL_REDUCE, ends("for (std::vector<char*> all;;) {"
                                 "all.push_back(new char[1 << 20]);"
                                 "std::memset(all.back(), 1, 1 << 20); }"), "memory"),
    "maps all memory": Submission(
        WITHOUT_ALL_REDUCE, ends("char* all = static_cast<char*>(mmap(nullptr, 1L << 40, 3,"
                                 "MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));"
                                 "all[0] = 1;"), "killed by signal 11"),
    "has a huge stack": Submission(
        WITHOUT_ALL_REDUCE, ends("volatile char room[32 << 20]; room[0] = 1;"
                                 "room[sizeof room - 1] = room[0];"), "killed by signal 11"),
    "calls itself for ever": Submission(
        WITHOUT_ALL_REDUCE, ends("all_reduce(rank, buffer); std::puts(\"\");"),
        "killed by signal 11"),
    "aborts": Submission(WITHOUT_ALL_REDUCE, ends("std::abort();"), "killed by signal 6"),
    "writes to nothing": Submission(WITHOUT_ALL_REDUCE, ends("*(volatile int*)8 = 1;"),
                                    "killed by signal 11"),
    "jumps to nowhere": Submission(
        WITHOUT_ALL_REDUCE, ends("static jmp_buf nowhere; longjmp(nowhere, 1);"),
        "killed by signal"),
    "throws a number": Submission(WITHOUT_ALL_REDUCE, ends("throw 42;"), "exception"),
    "throws in a destructor": Submission(
        WITHOUT_ALL_REDUCE, ends("struct Last { ~Last() noexcept(false) { throw 1; } } last;"
                                 "throw 2;"), "killed by signal 6"),
    "ends well when it is terminated": Submission(
        WITHOUT_ALL_REDUCE, ends("std::set_terminate([] { _exit(0); });"
                                 "[]() noexcept { throw 1; }();"), "exit status 0"),
    "throws megabytes": Submission(
        WITHOUT_ALL_REDUCE, ends("throw std::runtime_error(std::string(8 << 20, 'A'));"),
        "a message has the number 8388608"),
    "throws more than a message holds": Submission(
        WITHOUT_ALL_REDUCE, ends("throw std::runtime_error(std::string(60 << 20, 'A'));"),
        "a message is too long"),
    "has things that end late": Submission(
        ALL, starts("struct Late { ~Late() { for (;;) {} } };\n"
                    "static Late late; static thread_local Late own;"
                    "static const int registered = atexit([] { for (;;) {} });")),
    "has memory of its own": Submission(
        ALL, starts("static char pool[64 << 20]; static std::size_t used;\n"
                    'extern "C" void* malloc(std::size_t bytes) { used += (bytes + 31) / 16 * 16;'
                    " return pool + used - (bytes + 15) / 16 * 16; }\n"
                    'extern "C" void free(void*) {}')),
    "keeps what it can in globals": Submission(
        ALL, begins("static int calls; if (++calls > 1) return;", SIGNATURES[:1])),
}

IN_CALLS = {
    "makes processes": Submission(ALL, refuses(
        "fork()", "vfork()", "syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)",
        "syscall(SYS_clone, CLONE_VM | CLONE_THREAD | CLONE_SIGHAND, 0, 0, 0, 0)",
        "syscall(435, nullptr, 0)", "execv(\"/bin/true\", environ)",
        "-posix_spawn(nullptr, \"/bin/true\", nullptr, nullptr, environ, environ)")),
    "sends signals": Submission(ALL, refuses(
        "kill(getppid(), SIGKILL)", "kill(-1, SIGKILL)", "kill(1, SIGTERM)", "kill(0, SIGTERM)",
        "kill(getpid(), SIGKILL)", "raise(SIGKILL) == 0 ? 0 : -1",
        "syscall(SYS_tkill, syscall(SYS_gettid), SIGKILL)",
        "syscall(SYS_rt_sigqueueinfo, getppid(), SIGTERM, nullptr)",
        "fcntl(3, F_SETOWN, getppid())", "fcntl(3, 10, SIGKILL)", "syscall(424, 3, 9, 0, 0)",
        "prctl(PR_SET_PDEATHSIG, SIGKILL)")),
    "looks into others": Submission(ALL, refuses(
        "ptrace(PTRACE_ATTACH, getppid(), 0, 0)", "ptrace(PTRACE_TRACEME, 0, 0, 0)",
        "syscall(SYS_process_vm_readv, getppid(), 0, 0, 0, 0, 0)",
        "syscall(434, getppid(), 0)", "syscall(SYS_kcmp, getpid(), getppid(), 0, 3, 3)",
        "syscall(438, 3, 3, 0)", "open(\"/proc/self/mem\", O_RDONLY)",
        "open(\"/proc/self/statm\", O_RDONLY)", "open(\"/proc/1/environ\", O_RDONLY)",
        "open((\"/proc/\" + std::to_string(getppid()) + \"/statm\").c_str(), O_RDONLY)",
        "open(\"/proc\", O_RDONLY)")),
    "opens sockets": Submission(ALL, refuses(
        "socket(AF_INET, SOCK_STREAM, 0)", "socket(AF_INET6, SOCK_DGRAM, 0)",
        "socket(AF_UNIX, SOCK_STREAM, 0)", "socket(AF_NETLINK, SOCK_RAW, 0)",
        "socket(AF_PACKET, SOCK_RAW, 0)", "socket(AF_ALG, SOCK_SEQPACKET, 0)",
        "socket(40, SOCK_STREAM, 0)", "listen(3, 1)", "accept(3, nullptr, nullptr)",
        "sendmsg(3, nullptr, 0)")),
    "tries what is new": Submission(ALL, numbered(
        ("memfd_create", '"mine", 0'), ("userfaultfd", "0"), ("bpf", "0, nullptr, 0"),
        ("perf_event_open", "nullptr, 0, -1, -1, 0"), ("timerfd_create", "0, 0"),
        ("eventfd2", "0, 0"), ("signalfd4", "-1, nullptr, 8, 0"), ("epoll_create1", "0"),
        ("inotify_init1", "0"), ("fanotify_init", "0, 0"), ("keyctl", "0, 0, 0, 0, 0"),
        ("add_key", '"user", "mine", "x", 1, -1'), ("membarrier", "0, 0, 0"),
        ("seccomp", "0, 0, nullptr"), ("personality", "0xffffffff"),
        ("timer_create", "0, nullptr, nullptr"), ("shmget", "0, 4096, 01600"),
        ("msgget", "0, 01600"), ("semget", "0, 1, 01600"), ("mq_open", '"/mine", 0102, 0600, 0'),
        ("vmsplice", "3, nullptr, 0, 0"), ("name_to_handle_at", '-100, "/", nullptr, nullptr, 0'))
        ),
    "tries what is newest": Submission(ALL, refuses(*(
        f"syscall({number}, {arguments})" for number, arguments in [
            (425, "1, nullptr"), (426, "3, 1, 1, 0, nullptr, 0"), (428, '-100, "/", 0'),
            (429, '3, "", 3, "", 0'), (430, '"tmpfs", 0'), (437, '-100, "/", nullptr, 0'),
            (440, "3, nullptr, 0, 0, 0"), (442, '-100, "/", 0, nullptr, 0'), (444, "0, 0, 1"),
            (446, "3, 0"), (447, "0"), (451, "0, 0, 0, 0"), (457, "0, 0, 0, 0"),
            (462, "0, 0, 0")]))),
    "makes a system of its own": Submission(ALL, refuses(
        "unshare(CLONE_NEWUSER)", "unshare(CLONE_NEWNS)", "unshare(CLONE_FILES)", "setns(3, 0)",
        "mount(\"none\", \"/\", \"tmpfs\", 0, \"\")", "umount(\"/\")", "chroot(\".\")",
        "syscall(SYS_pivot_root, \".\", \".\")", "chdir(\"/\")")),
    "asks for more": Submission(ALL, refuses(
        "[] { rlimit more{100, 100}; return setrlimit(RLIMIT_CPU, &more); }()",
        "[] { rlimit more{RLIM_INFINITY, RLIM_INFINITY};"
        " return syscall(SYS_prlimit64, 0, RLIMIT_AS, &more, nullptr); }()",
        "[] { rlimit less{1, 1}; return syscall(SYS_prlimit64, getppid(), RLIMIT_CPU, &less,"
        " nullptr); }()", "prctl(PR_SET_DUMPABLE, 1)", "prctl(PR_SET_SECCOMP, 0)", "setuid(0)",
        "setgid(0)", "syscall(SYS_capset, nullptr, nullptr)",
        "setpriority(PRIO_PROCESS, 0, -20)", "sched_setaffinity(0, 0, nullptr)")),
    "leaves files": Submission(ALL, refuses(
        "open(\"left\", O_WRONLY | O_CREAT, 0644)", "open(\"/tmp/left\", O_RDWR | O_CREAT, 0644)",
        "open(\".\", O_RDWR | O_TMPFILE, 0600)", "open(\"ring.cpp\", O_RDONLY | O_TRUNC)",
        "open(\"program\", O_RDWR)", "unlink(\"ring.cpp\")", "rename(\"ring.cpp\", \"left\")",
        "mkdir(\"left\", 0755)", "symlink(\"/\", \"left\")", "link(\"ring.cpp\", \"left\")",
        "chmod(\"ring.cpp\", 04777)", "mkfifo(\"left\", 0600)", "truncate(\"ring.cpp\", 0)",
        "open(\"/dev/shm/left\", O_RDWR | O_CREAT, 0644)",
        "open(\"@TEMPORARY@\", O_WRONLY)")),
}

ON_THE_LINE = {
    "prints a report": Submission(
        WITHOUT_ALL_REDUCE, ends(f"std::puts(R\"({FORGED})\"); std::fflush(stdout);"
                                 "std::exit(0);"), "exit status 0"),
    "writes a report to all that is open": Submission(
        WITHOUT_ALL_REDUCE, ends(f"for (int i = 0; i < 1024; ++i) (void)!write(i, R\"({FORGED})\","
                                 f" {len(FORGED)}); _exit(0);"),
        "a message is too long"),
    "says that it returned": Submission(
        WITHOUT_ALL_REDUCE, ends("write_words({32, @RETURNED@, 0, 0, 0}); _exit(0);"),
        "no tensor was returned"),
    "says that it returned before it was asked": Submission(
        NOTHING, starts("__attribute__((constructor(101))) static void early() {"
                        "write_words({32, @RETURNED@, 0, 0, 0}); _exit(0); }"),
        "exit status 0"),
    "says that it returned, drop by drop": Submission(
        WITHOUT_ALL_REDUCE,
        ends("const long long words[] = {32, @RETURNED@, 0, 0, 0};"
             "for (unsigned i = 0; i < sizeof words; ++i) {"
             "(void)!write(3, reinterpret_cast<const char*>(words) + i, 1); usleep(100); }"
             "_exit(0);"), "no tensor was returned"),
    "says half": Submission(WITHOUT_ALL_REDUCE, ends("write_words({32, 1}); _exit(0);"),
                            "exit status 0"),
    "announces 2^60 bytes": Submission(
        WITHOUT_ALL_REDUCE, ends("write_words({1LL << 60}); for (;;) pause();"), "too long"),
    "announces less than nothing": Submission(
        WITHOUT_ALL_REDUCE, ends("write_words({-8, 1}); for (;;) pause();"), "too long"),
    "makes noise": Submission(
        WITHOUT_ALL_REDUCE, ends("for (long long word = 1;; word = word * 6364136223846793005)"
                                 " write_words({word});"), "too short"),
    "closes the line": Submission(
        WITHOUT_ALL_REDUCE, ends("close(3); for (;;) pause();"), "closed the line"),
    "shuts the line": Submission(
        WITHOUT_ALL_REDUCE, ends("shutdown(3, SHUT_RDWR); for (;;) pause();"),
        "it did nothing for 10 s", slow=True),
    "naps": Submission(WITHOUT_ALL_REDUCE, ends(ONE % "for (;;) usleep(1000);"),
                       "it did nothing for 10 s", slow=True),
    "holds more than a program holds": Submission(
        WITHOUT_ALL_REDUCE, ends("for (std::vector<Tensor> all;;)"
                                 "all.push_back(buffer.slice(0, 1));"),
        "more memory on the host"),
    "fills the device": Submission(
        WITHOUT_ALL_REDUCE, ends("for (std::vector<Tensor> all;;)"
                                 "all.push_back(rank.device().empty({1 << 20}, DType::f64));"),
        "memory"),
    "has a main of its own": Submission(
        NOTHING, starts(f"int main() {{ std::puts(R\"({FORGED})\"); return 0; }}"),
        "exit status 0"),
}

IN_THE_COMPILER = {
    "includes what never ends": fails(starts('#include "/dev/zero"'), NOT_SHOWN),
    "includes what the grader reads": fails(starts('#include "/dev/stdin"\n#include "/dev/fd/3"'),
                                            NOT_SHOWN),
    "includes itself": fails(starts('#include "ring.cpp"'), "include nested|#include"),
    "assembles what never ends": fails(starts('asm(".incbin \\"/dev/zero\\"");'), NOT_SHOWN),
    "repeats for ever": fails(starts('asm(".rept 2000000000\\n.quad 1\\n.endr");'), ".",
                              slow=True),
    "is 3 GB long": fails(starts("char data[3000000000] = {1};"),
                          "the compiler was stopped|more than 1536 MiB"),
    "computes while it is compiled": fails(
        starts("constexpr long loop(long n) { long x = 0; for (long i = 0; i < n; ++i) x += i;"
               " return x; } static_assert(loop(1L << 60) == 0);"),
        "constexpr|constant"),
    "instantiates for ever": fails(
        starts("template <int N> struct Deep { static constexpr int value = Deep<N + 1>::value"
               " + Deep<N + 2>::value; }; static const int deep = Deep<0>::value;"),
        "instantiation depth|memory"),
    "laughs a billion times": fails(
        starts("#define L0 1,1,1,1,1,1,1,1,1,1\n" + "\n".join(
            f"#define L{n} " + ",".join([f"L{n - 1}"] * 10) for n in range(1, 10))
            + "\nstatic const int laughs[] = {L9};"), ".", slow=True),
    "is nested too deep": fails(starts("int x = " + "(" * 100000 + ";"), "."),
    "prints what is no text": fails(
        starts("#error \x1b[2J\x1b]0;t\x07<script>alert(1)</script>]]>\u202e \x7f" + "x" * 1000000),
        "#error", in_all_formats=True),
    "names files of others": fails(starts('#line 1 "@OUTSIDE@"\nint x = y;'), "declared"),
    "names the system's files": fails(starts('#line 1 "/etc/passwd"\nint x = y;'), "declared"),
    "includes the instructor's file": fails(starts('#include "@OUTSIDE@"'), NOT_SHOWN),
    "includes another's work": fails(starts('#include "@NEIGHBOUR@"'), NOT_SHOWN),
    "includes the reference": fails(starts('#include "@REFERENCE@"'), NOT_SHOWN),
    "includes what is temporary": fails(starts('#include "@TEMPORARY@"'), NOT_SHOWN),
    "includes what it is graded by": fails(starts('#include "@GRADING@"'), NOT_SHOWN),
    "includes processes": fails(starts('#include "/proc/self/environ"\n'
                                       '#include "/proc/1/cmdline"'), NOT_SHOWN),
    "assembles the reference": fails(
        starts('asm("held: .incbin \\"@REFERENCE@\\"\\n.byte 0"); extern "C" const char held[];'),
        NOT_SHOWN),
    "assembles the system's users": fails(
        starts('asm("held: .incbin \\"/etc/shadow\\"\\n.byte 0"); extern "C" const char held[];'),
        NOT_SHOWN),
    "takes the device's place": fails(
        lambda reference: reference + "\nvoid lockstep::Device::add(const Tensor&, const Tensor&,"
        " double, SourceLine) {}\n", "redefinition"),
    "takes the tasks' place": Submission(
        NOTHING, lambda reference: '#include "lockstep/course/task.hpp"\n' + reference
        + "\nlockstep::Tasks lockstep::tasks() { return {}; }\n", "there is no task"),
    "is not for this system": Submission(
        NOTHING, starts('asm(".pushsection .interp,\\"a\\",@progbits\\n.ascii \\"x\\"\\n'
                        '.popsection\\n");'), "the system cannot run it"),
    "opens what is private": Submission(ALL, lambda reference: "#define private public\n"
                                        "#define protected public\n" + reference),
    "has pragmas and sections": Submission(
        ALL, lambda reference: '#pragma GCC optimize("O0")\n' + reference
        + '\nasm(".pushsection .gnu.lto_.opts,\\"\\",@progbits\\n'
          '.ascii \\"-fplugin=./x.so -wrapper ./x\\"\\n.popsection");\n'),
    "brings its own build": Submission(
        ALL, same, files={"meson.build": "run_command('touch', '@TEMPORARY@', check: true)\n",
                          "adapters.hpp": "#error mine\n", "tasks.cpp": "#error mine\n",
                          "Makefile": "all:\n\ttouch @TEMPORARY@\n"}),
}

READS = {
    "reads planted files": reads_none(
        "@OUTSIDE@", "@NEIGHBOUR@", "@REFERENCE@", "@TEMPORARY@", "@GRADING@"),
    "reads them another way": reads_none(
        "/proc/self/root@OUTSIDE@", "/proc/self/cwd/../../planted/secret", "../planted/secret",
        "../../tmp/planted/secret", "/proc/1/root@REFERENCE@", "/dev/fd/3",
        "/proc/self/exe/../ring.cpp"),
    "reads the system's files": reads_none(
        "/etc/passwd", "/etc/shadow", "/etc/hostname", "/proc/self/environ", "/proc/self/maps",
        "/proc/cpuinfo", "/sys/kernel/notes", "/dev/urandom"),
    # This program can read its file and report the text, so the system did refuse the reads above.
    "reads its own file": Submission(
        NOTHING, lambda reference: "//@OWN@\n" + tells("./ring.cpp")(reference), "@OWN@"),
}

IN_FILES = {
    "is a link": fails(same, "ring.cpp is not a regular file",
                       prepare=source(lambda path: os.symlink("/etc/passwd", path))),
    "is a link to what never ends": fails(
        same, "not a regular file", prepare=source(lambda path: os.symlink("/dev/zero", path))),
    "is a link to itself": fails(
        same, "not a regular file", prepare=source(lambda path: os.symlink("ring.cpp", path))),
    "is a pipe": fails(same, "not a regular file", prepare=source(os.mkfifo)),
    "is a folder": fails(same, "not a regular file", prepare=source(os.mkdir)),
    "is not there": fails(same, "ring.cpp is not there", prepare=source(lambda path: None)),
    "is 100 GiB long": fails(same, "bytes", prepare=source(sparse)),
    "is nothing": fails(same, "undefined reference", prepare=source(written(b""))),
    "is zero bytes": fails(same, ".", prepare=source(written(bytes(10000)))),
    "is no text": fails(same, ".", prepare=source(written(bytes(range(256)) * 100))),
    "cannot be opened": fails(same, "undefined reference|cannot be read", prepare=source(closed)),
}

CHEATS = {
    "leaves another shape": Submission(
        70 - 35, begins("const_cast<Tensor&>(buffer) = buffer.slice(0, 1); return;",
                        SIGNATURES[:1]), r"\(1\) x f64"),
    "leaves another type": Submission(
        35, begins("const_cast<Tensor&>(buffer) = rank.device().zeros(buffer.shape(),"
                   "DType::f32); return;", SIGNATURES[:1]), "f32"),
    "leaves nothing": Submission(
        35, begins("const_cast<Tensor&>(buffer) = Tensor(); return;", SIGNATURES[:1])),
    "leaves what is no number": Submission(
        35, begins("rank.device().fill(buffer, std::numeric_limits<double>::quiet_NaN());"
                   "return;", SIGNATURES[:1]), "nan"),
    "leaves infinity": Submission(
        35, begins("rank.device().fill(buffer, std::numeric_limits<double>::infinity());"
                   "return;", SIGNATURES[:1]), "inf"),
    "sends zeros of the right sizes": Submission(
        NOTHING, lambda reference: reference.replace(
            "rank.device().add(mine, coming);", "(void)coming;").replace(
            "const Tensor& going, const Tensor& coming) {",
            "const Tensor& going, const Tensor& coming) { rank.device().fill(going, 0);")),
    "calls the library": Submission(
        NOTHING, begins("rank.world().all_reduce(buffer).wait(); return;"), "all_reduce"),
    "works at one number of ranks": Submission(
        NOTHING, begins('if (rank.size() != 4) throw std::runtime_error("never seen");'),
        "never seen"),
    "computes on the host": Submission(
        NOTHING, begins("const HostTensor here = rank.device().download(buffer);"
                        "rank.device().copy(buffer, rank.device().upload(here));"),
        "cannot be read on the host"),
}

HOSTILE_TEXT = {
    "says what is no text": Submission(
        NOTHING, begins(f"throw std::runtime_error(std::string({TEXT}) + std::string(1, '\\0')"
                        " + \"end\");"), "end", in_all_formats=True),
}

SUBMISSIONS = {**IN_PROCESSES, **IN_CALLS, **ON_THE_LINE, **IN_THE_COMPILER, **READS, **IN_FILES,
               **CHEATS, **HOSTILE_TEXT}
