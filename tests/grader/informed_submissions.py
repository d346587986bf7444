"""More submissions to ring-all-reduce, by attackers who have read the grader's sources.

INFORMED is like SUBMISSIONS of hostile_submissions.py. The test also replaces the names of requests
(@FREED@, @LAUNCH@, …) by their numbers.
"""

import os
import socket

from hostile_submissions import (ALL, HEADERS, NOT_SHOWN, NOTHING, ONE, SIGNATURES, TEXT,
                                 WITHOUT_ALL_REDUCE, Submission, begins, ends, fails, numbered,
                                 refuses, same, source, starts, written)

EXCHANGE = "exchange(Rank& rank, const Tensor& going, const Tensor& coming)"
HOP = "rank.world().group().send(going, before).recv(coming, next).start().wait();"
ADD = "rank.device().add(mine, coming);"


def instead(code, *functions):
    """Lets these functions run only the code."""
    return begins("{ %s } if (rank.size() > 0) return;" % code, functions)


def with_change(old, new):
    def change(reference):
        assert reference.count(old) == 1
        return HEADERS + reference.replace(old, new)
    return change


def says(*frames):
    """Lets all_reduce write frames of 8-byte words to the line, without their lengths."""
    return begins("".join("write_words({%d, %s});\n" % (8 * len(frame.split(",")), frame)
                          for frame in frames), SIGNATURES[2:])


def invalid(frame, sentence, *more):
    return Submission(WITHOUT_ALL_REDUCE, says(frame, *more), "invalid message: " + sentence)


def costs(points, change, sentence):
    return Submission(ALL - points, change, sentence)


IN_PROCESSES = {
    "asks for what programs of root have": Submission(ALL, numbered(
        ("iopl", "3"), ("ioperm", "0, 16, 1"), ("modify_ldt", "0, nullptr, 0"),
        ("mlockall", "3"), ("mlock2", "nullptr, 4096, 0"), ("reboot", "0, 0, 0, nullptr"),
        ("swapoff", '"/"'), ("init_module", 'nullptr, 0, ""'), ("settimeofday", "nullptr, nullptr"),
        ("adjtimex", "nullptr"), ("sethostname", '"mine", 4'), ("syslog", "3, nullptr, 0"),
        ("vhangup", "0"), ("acct", "nullptr"), ("quotactl", "0, nullptr, 0, nullptr"),
        ("kexec_load", "0, 0, nullptr, 0"), ("mknodat", '-100, "left", 020600, 0'),
        ("fchownat", '-100, "ring.cpp", 0, 0, 0'), ("setresuid", "0, 0, 0"),
        ("setgroups", "0, nullptr"), ("setsid", "0"))),
    "asks to be served first": Submission(ALL, numbered(
        ("sched_setscheduler", "0, SCHED_FIFO, nullptr"), ("sched_setattr", "0, nullptr, 0"),
        ("sched_setparam", "0, nullptr"), ("ioprio_set", "1, 0, 0"),
        ("set_mempolicy", "0, nullptr, 0"), ("migrate_pages", "0, 0, nullptr, nullptr"),
        ("move_pages", "getppid(), 0, nullptr, nullptr, nullptr, 0"),
        ("process_vm_writev", "getppid(), nullptr, 0, nullptr, 0, 0"),
        ("get_robust_list", "getppid(), nullptr, nullptr"), ("getpriority", "0, getppid()"))),
    "asks prctl": Submission(ALL, refuses(*(f"prctl({option})" for option in [
        'PR_SET_NAME, "sshd"', "PR_SET_MM, 1, 4096, 0, 0", "PR_SET_PTRACER, -1",
        "PR_SET_CHILD_SUBREAPER, 1", "PR_SET_TIMERSLACK, 1", "PR_CAP_AMBIENT, 2, 0, 0, 0",
        "PR_SET_KEEPCAPS, 1", "PR_SET_SECUREBITS, 0", "PR_MCE_KILL, 1, 0, 0, 0",
        "PR_SET_THP_DISABLE, 1, 0, 0, 0", "59, 1, 0, 0, nullptr", "62, 1, 0, 0, 0",
        "0x53564d41, 0, 0, 4096, nullptr"]))),
    "copies between descriptors": Submission(ALL, refuses(
        "syscall(SYS_sendfile, 3, 0, nullptr, 1)", "syscall(SYS_splice, 3, 0, 1, 0, 1, 0)",
        "syscall(SYS_tee, 3, 1, 1, 0)", "syscall(SYS_copy_file_range, 3, 0, 1, 0, 1, 0)",
        "syscall(SYS_pwrite64, 1, \"\", 0, 0)", "ftruncate(1, 1 << 30)", "fallocate(1, 0, 0, 1)",
        "dup2(3, 0)", "pipe2(nullptr, 0)", "socketpair(AF_UNIX, SOCK_STREAM, 0, nullptr)",
        "fchmod(1, 0777)", "syscall(SYS_ioctl, 0, 0x5412, \"x\")", "syscall(SYS_ioctl, 3, 0x8901)",
        "syscall(SYS_getdents64, open(\".\", O_RDONLY | O_DIRECTORY), nullptr, 0)",
        "syscall(SYS_setxattr, \"ring.cpp\", \"user.x\", \"\", 0, 0)",
        "syscall(SYS_utimensat, -100, \"ring.cpp\", nullptr, 0)", "syscall(SYS_flock, 1, 2)",
        "fcntl(3, F_SETSIG, SIGKILL)", "fcntl(1, F_ADD_SEALS, 0)", "fcntl(1, F_SETLK, nullptr)")),
    "starts itself again": Submission(ALL, refuses(
        "setenv(\"LD_PRELOAD\", \"./ring.hpp\", 1) + execv(\"./program\", environ) - 1",
        "execv(\"/proc/self/exe\", environ)", "execve(\"./program\", nullptr, environ)",
        "syscall(322, open(\"program\", O_RDONLY), \"\", nullptr, environ, 0x1000)",
        "execv(\"/lib64/ld-linux-x86-64.so.2\", environ)")),
    "calls the system as 32-bit programs do": Submission(
        WITHOUT_ALL_REDUCE, ends("\n#ifdef __x86_64__\n"
                                 'long number = 20; asm volatile("int $0x80" : "+a"(number));'
                                 "\n#else\nraise(SIGSYS);\n#endif\n"),
        "killed by signal (31|11)"),  # 11: of a kernel without such calls
    "writes code, and runs it": Submission(
        ALL, begins("\n#ifdef __x86_64__\n"
                    "auto* code = static_cast<unsigned char*>(mmap(nullptr, 4096, 7,"
                    " MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)); code[0] = 0xc3;"
                    " reinterpret_cast<void (*)()>(code)();\n#endif\n", SIGNATURES[2:])),
    "overwrites the C library's code": Submission(
        WITHOUT_ALL_REDUCE, ends(
            "auto* code = reinterpret_cast<unsigned char*>(&::send);"
            "auto* page = reinterpret_cast<char*>(reinterpret_cast<long>(code) & ~4095L);"
            "if (mprotect(page, 8192, 7) == 0) std::memset(code, 0xcc, 16);"
            "rank.device().fill(buffer, 0);"), "killed by signal"),
    "gives objects other functions": Submission(
        WITHOUT_ALL_REDUCE, ends(
            "static void (*functions[64])(); for (auto& each : functions) each = [] { _exit(0); };"
            "*reinterpret_cast<void**>(&rank.world()) = functions; rank.world().barrier();"),
        "exit status 0"),
    "has functions that are chosen before it starts": Submission(
        NOTHING, starts('extern "C" { static void chosen() {} static void (*choose())() {'
                        "\n#ifdef __x86_64__\nlong call = SYS_exit_group; asm volatile("
                        '"syscall" : "+a"(call) : "D"(0) : "rcx", "r11", "memory");\n#endif\n'
                        " __builtin_trap(); return chosen; }"
                        ' void picked() __attribute__((ifunc("choose"))); }'
                        "void (*volatile use)() = picked;"),
        "exit status 0|killed by signal"),
    "brings a C library of its own": Submission(
        ALL, starts(r"""
extern "C" ssize_t send(int file, const void* data, size_t bytes, int flags) {
    return syscall(SYS_sendto, file, data, bytes, flags, nullptr, 0); }
extern "C" ssize_t recv(int file, void* data, size_t bytes, int flags) {
    return syscall(SYS_recvfrom, file, data, bytes, flags, nullptr, nullptr); }
extern "C" ssize_t write(int file, const void* data, size_t bytes) {
    return syscall(SYS_write, file, data, bytes); }
extern "C" __attribute__((optimize("no-tree-loop-distribute-patterns")))
void* memcpy(void* to, const void* from, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
        static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
    return to; }""")),
    "answers when it should ask": Submission(
        NOTHING, starts('extern "C" ssize_t send(int, const void*, size_t bytes, int) {'
                        "write_words({32, @RETURNED@, 0, 0, 0}); return bytes; }"),
        "no tensor was returned"),
    "says everything twice": Submission(
        NOTHING, starts('extern "C" ssize_t send(int file, const void* data, size_t bytes, int) {'
                        "(void)!write(file, data, bytes); return write(file, data, bytes); }"),
        "a1.1-values"),
    "throws by itself": Submission(
        WITHOUT_ALL_REDUCE,
        lambda reference: HEADERS + 'extern "C" void __cxa_throw(void*, void*, void (*)(void*)) {'
        " _exit(0); }\n" + ends("throw 1;")(reference).replace(HEADERS, ""), "exit status 0"),
    "has no memory to give": Submission(
        NOTHING, starts("void* operator new(std::size_t) { throw std::bad_alloc(); }"), "memory"),
    "defines what the kit defines": fails(
        starts('#include <lockstep/comm/communicator.hpp>\n'
               "lockstep::Work lockstep::Communicator::send(const Tensor&, int, SourceLine) {"
               " return {}; }"), "multiple definition of"),
    "defines it weakly": Submission(
        ALL, starts('#include <lockstep/comm/communicator.hpp>\n'
                    "__attribute__((weak)) lockstep::Work lockstep::Communicator::send("
                    "const Tensor&, int, SourceLine) { _exit(0); }")),
    "takes another rank's number": Submission(
        NOTHING, lambda reference: HEADERS + "#define private public\n"
        + begins("rank.world().rank_ = 0;")(reference).replace(HEADERS, ""),
        "F11: sends and recvs wait for each other"),
    "is larger than its memory": Submission(
        NOTHING, starts('asm(".comm room, 0x1000000000, 16"); extern char room[];'
                        "char* volatile begin = room;"), "killed by signal|cannot run it"),
    "computes for half of its time": Submission(
        ALL, begins("for (const clock_t now = clock(); clock() < now + CLOCKS_PER_SEC / 2;) {}",
                    SIGNATURES[:2]), slow=True),
    "naps before each call": Submission(ALL, begins("usleep(50000);")),
}

ON_THE_LINE = {
    "frees a tensor twice": invalid("@FREED@, 1", "a tensor is freed twice", "@FREED@, 1"),
    "frees what it was given": invalid("@FREED@, 1", "a tensor that does not exist"),
    "waits for nothing": invalid("@WAIT@, -1, 0, 0", "a wait for work that does not exist"),
    "waits for no work at all": Submission(
        WITHOUT_ALL_REDUCE, says("@WAIT_ANY@, 0, 0, 0"), "wait_any|invalid message"),
    "releases nothing": invalid("@WORK_RELEASED@, 1000000000000", "a message has the number 1000000000000"),
    "leaves the world": invalid("@COMMUNICATOR_GONE@, 0", "a communicator goes twice"),
    "sends where it is no member": invalid("@LAUNCH@, 1, 0, 0, 0",
                                           "a communicator that does not exist"),
    "ends what never began": invalid("@PHASE_ENDED@", "a phase ends that never began"),
    "asks for what nobody can ask": invalid("@THREW@ + 1", "a message has the number 22"),
    "asks for 2^64 numbers": invalid("@EMPTY@, 0, 2, 4294967296, 4294967296, 0, 0, 0",
                                     "a message has too large a shape"),
    "asks for fewer than none": invalid("@EMPTY@, 0, 1, -8, 0, 0, 0",
                                        "a message has the number -8"),
    "reads before a tensor": invalid("@PEEK@, 1, -8, 1, 1, 1, 0, 0, 0, 0",
                                     "a tensor that reaches beyond its memory"),
    "reads as another type": invalid("@PEEK@, 1, 0, 1, 1, 2, 0, 0, 0, 0",
                                     "a tensor that reaches beyond its memory"),
    "reads what others have": invalid("@PEEK@, 2, 0, 1, 1, 1, 0, 0, 0, 0",
                                      "a tensor that does not exist"),
    "returns more than there is": invalid("@RETURNED@, 65537", "a message has the number 65537"),
    "says without end that something begins": Submission(
        WITHOUT_ALL_REDUCE, ends("for (;;) write_words({40, @PHASE_BEGAN@, 0, 0, 0, 0,"
                                 " 8, @PHASE_ENDED@});"),
        "rank . had not ended after 200000 operations", slow=True),
    "starts too much together": Submission(
        WITHOUT_ALL_REDUCE, ends("Group group = rank.world().group();"
                                 "for (int i = 0; i < 5000; ++i) group.send(buffer, rank.index());"
                                 "group.start().wait();"),
        "a group has too many operations"),
    "asks for large products": Submission(
        WITHOUT_ALL_REDUCE, ends("const Tensor a = rank.device().zeros({1000, 1000}, DType::f64);"
                                 "const Tensor b = rank.device().zeros({1000, 1000}, DType::f64);"
                                 "for (;;) rank.device().matmul_into(b, a, a);"),
        "kept the grader busy for more than", slow=True),
    # The long ring, in which time and memory are judged, is right.
    "returns more than the grader has": costs(15, begins(
        "if (rank.size() > 5 && buffer.elements() < 100) {"
        "const Tensor large = rank.device().zeros({31 << 17}, DType::f64);"
        "write_words({8 * 22, @RETURNED@, 2, 8, 'a', 2, 0, 1, 31 << 17, 1, 0, 0,"
        " 8, 'b', 2, 0, 1, 31 << 17, 1, 0, 0, 0, 0}); for (;;) pause(); }", SIGNATURES[2:]),
        "it asks the simulator for too much memory"),
    "says in other words that nothing is written": Submission(
        WITHOUT_ALL_REDUCE, says("@THREW@, 0, 8, 0x4141414141414141"), "AAAAAAAA"),
}

IN_THE_COMPILER = {
    "asks which files are there": Submission(ALL, starts("\n".join(
        f'#if __has_include("{path}")\n#error it got away with that\n#endif' for path in [
            "@OUTSIDE@", "@NEIGHBOUR@", "@REFERENCE@", "@TEMPORARY@", "@GRADING@", "/etc/passwd",
            "../planted/secret", "/proc/self/maps"]))),
    "depends on the reference": fails(starts('#pragma GCC dependency "@REFERENCE@"'), NOT_SHOWN),
    "embeds the reference": fails(starts('const char held[] = {\n#embed "@REFERENCE@"\n};'),
                                  NOT_SHOWN + "|#embed"),
    "includes by another way": fails(starts("#include </usr/include/../..//@REFERENCE@>"),
                                     NOT_SHOWN),
    "assembles the reference as text": fails(
        starts('asm(".include \\"@REFERENCE@\\"");'), NOT_SHOWN + "|can.t open"),
    "includes randomness": fails(starts('#include "/dev/urandom"'), "more than 1536 MiB of memory"),
    "says that it was killed": fails(
        starts("#error Killed signal terminated program cc1plus"), "#error Killed"),
    "says that there is no room": fails(starts("#error No space left on device"), "#error No"),
    "fills the place of others": fails(
        starts('asm(".data\\n.fill 250000000, 1, 1");'), "larger than 64 MiB"),
    # If the linker reads such a section, it looks for the whole program in sections like it.
    "has bytecode for the linker": Submission(ALL, starts(
        'asm(".pushsection .gnu.lto_.symtab.1,\\"e\\",@progbits\\n.asciz \\"mine\\"\\n.asciz \\"\\"'
        '\\n.byte 0, 0\\n.quad 0\\n.long 0\\n.popsection");')),
    "begins where programs begin": fails(starts('extern "C" void _start() { _exit(0); }'),
                                         "multiple definition of"),
    "has notes that are none": Submission(ALL, starts(
        'asm(".pushsection .note.gnu.property,\\"a\\",@note\\n.long 4, 2000000000, 5\\n'
        '.ascii \\"GNU\\\\0\\"\\n.popsection\\n.pushsection .gnu.warning.send,\\"\\"\\n'
        '.ascii \\"error: undefined reference to `main\'\\"\\n.popsection");')),
    "renames what it calls": Submission(ALL, starts(
        "#pragma weak nothing_of_the_kind\n#pragma GCC poison lockstep_report\n"
        "#pragma GCC push_options\n#pragma GCC optimize(\"O3\", \"fast-math\")\n"
        "#pragma GCC visibility push(default)\n#pragma message \"error: mine\"\n"
        "extern \"C\" int nothing_of_the_kind(); static int mine() asm(\"lockstep_score\");"
        "static int mine() { return 100; } int (*volatile used)() = mine;"
        'asm(".symver lockstep_score, lockstep_score@VERS_1");')),
    "has a mark and odd ends of lines": Submission(
        ALL, lambda reference: "\ufeff" + reference.replace("\n", "\r\n")),
    "has trigraphs and long lines": Submission(
        ALL, lambda reference: reference + "\n// ??/\n" + "/* " + "x" * 900000 + " */\n"),
    "has zero bytes": Submission(ALL, lambda reference: "// \0\0\0\n" + reference),
    "is written in UTF-16": fails(same, "stray", prepare=source(
        written("int x;\n".encode("utf-16")))),
    "warns without end": Submission(ALL, starts("#warning error: 100\n" * 40000)),
    "has fifty thousand mistakes": fails(starts("int x = y;\n" * 50000), "'y' was not declared"),
    "is a little too long": fails(lambda reference: reference + "/" * (1 << 20), "more than 1 MiB"),
    "names its lines": Submission(
        NOTHING, lambda reference: HEADERS + reference.replace(
            HOP, f"\n#line 7 {TEXT}\nrank.world().send(going, before).wait();"),
        "F11: sends and recvs wait for each other", in_all_formats=True),
}


def moved(count):
    """Moves the files to one of many folders."""
    def prepare(folder):
        files = os.listdir(folder)
        for number in range(count):
            os.mkdir(os.path.join(folder, f"{number:05}"))
        for file in files:
            os.rename(os.path.join(folder, file), os.path.join(folder, "00007", file))
    return prepare


def with_folders(*names):
    """Puts folders in the place of files."""
    def prepare(folder):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                os.remove(path)
            os.mkdir(path)
    return prepare


def with_odd_neighbours(folder):
    os.mkfifo(os.path.join(folder, "kit"))
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.getcwd()
        os.chdir(folder)
        listening.bind("tasks.cpp")
        os.chdir(here)
    with_folders("adapters.hpp", "program", "ring.cpp.o", "empty.cpp", "unpacked")(folder)
    for name in ["-o", "@ring.cpp", "new\nline", "\u202egnp.", "x" * 255, "\udcff", "$(reboot)"]:
        with open(os.path.join(folder, name), "wb"):
            pass
    os.symlink("/", os.path.join(folder, "all"))
    with open(os.path.join(folder, "huge.zip"), "wb") as file:
        file.truncate(100 << 30)


IN_FILES = {
    "is in one of many folders": Submission(ALL, same, prepare=moved(3000)),
    "has odd neighbours": Submission(ALL, same, prepare=with_odd_neighbours),
    "has a folder for a header": fails(same, "ring.hpp is not a regular file",
                                       prepare=with_folders("ring.hpp")),
    "includes itself as the grader's": Submission(
        ALL, same, files={"ring.hpp": "#pragma once\n#define reduce_scatter all_gather\n"
                          "#undef reduce_scatter\n#include \"./adapters.hpp\"\n"
                          + "".join(f"void {name};\n" for name in [
                              "reduce_scatter(lockstep::Rank&, const lockstep::Tensor&)",
                              "all_gather(lockstep::Rank&, const lockstep::Tensor&)",
                              "all_reduce(lockstep::Rank&, const lockstep::Tensor&)"])}),
}

RING = ("const int n = rank.size(); if (n == 1) return;"
        "const int before = (rank.index() + n - 1) % n; const int next = (rank.index() + 1) % n;")
CHEATS = {
    "gathers all, and adds up": costs(65, instead(
        RING + "const Tensor own = chunk_of(buffer, n, rank.index());"
        "const auto room = [&] { return rank.device().empty(buffer.shape(), buffer.dtype()); };"
        "Tensor last = room(), coming = room(); rank.device().copy(last, buffer);"
        "for (int step = 1; step < n; ++step) { exchange(rank, last, coming);"
        " rank.device().add(own, chunk_of(coming, n, rank.index())); std::swap(last, coming); }",
        SIGNATURES[0]), "not the whole buffer"),
    "sends to all at once": costs(30, instead(
        RING + "auto group = rank.world().group(); for (int i = 0; i < n; ++i)"
        " if (i != rank.index()) group.send(chunk_of(buffer, n, rank.index()), i)"
        ".recv(chunk_of(buffer, n, i), i); group.start().wait();", SIGNATURES[1]),
        "one from rank 0 to rank 1"),
    "sends by all_to_all_v": costs(65, with_change(
        "    for (int step = 0; step + 1 < n; ++step)\n        exchange(rank,",
        "    for (int step = 0; step + 1 < n; ++step)\n"
        "        [&](Rank&, const Tensor& going, const Tensor& coming) {"
        "std::vector<std::int64_t> send(n), recv(n); send[(rank.index() + n - 1) % n] ="
        " going.elements(); recv[(rank.index() + 1) % n] = coming.elements();"
        "rank.world().all_to_all_v(coming, recv, going, send).wait(); }(rank,"),
        r"all_to_all_v\(\)"),
    "sends through a ring of its own": Submission(NOTHING, with_change(
        HOP, "auto ring = rank.world().split(0, -rank.index());"
        "ring->group().send(going, n - 1 - before).recv(coming, n - 1 - next).start().wait();"),
        r"split\(\)"),
    "sends in drops": costs(35, instead(
        RING + "for (int i = 0; i < 8; ++i) { const Chunk out = chunk(going.elements(), 8, i);"
        "const Chunk in = chunk(coming.elements(), 8, i); rank.world().group()"
        ".send(going.slice(out.begin, out.count), before).recv(coming.slice(in.begin, in.count),"
        " next).start().wait(); }", EXCHANGE), "24 messages"),
    "sends nothing besides": costs(35, with_change(
        HOP, HOP + "for (int i = 0; i < 8; ++i)"
        " rank.world().group().send(going.slice(0, 0), before)"
        ".recv(coming.slice(0, 0), next).start().wait();"), "27 messages"),
    "does not wait": Submission(NOTHING, with_change(HOP, HOP.replace(".wait()", "")),
                                "F16: a buffer is read before it has arrived"),
    "returns before the last hop has come": costs(30, with_change(
        "    reduce_scatter(rank, buffer);\n    all_gather(rank, buffer);",
        "    static Work kept; const int n = rank.size(); if (n == 1) return;"
        "const Tensor room = rank.device().empty(buffer.shape(), buffer.dtype());"
        "kept = rank.world().group().send(buffer, (rank.index() + n - 1) % n)"
        ".recv(room, (rank.index() + 1) % n).start();"),
        "F19: a communication that was never waited for"),
    "adds in f32": costs(65, with_change(
        ADD, "const auto small = [&](const Tensor& wide) { const Tensor made ="
        " rank.device().empty(wide.shape(), DType::f32); rank.device().cast(made, wide);"
        " return made; }; const Tensor sum = small(mine); rank.device().add(sum, small(coming));"
        "rank.device().cast(mine, sum);"), "own chunk"),
    "adds, takes away, and adds": costs(10, with_change(
        ADD, "for (int i = 0; i < 20; ++i) { rank.device().add(mine, coming);"
        " rank.device().add(mine, coming, -1); }" + ADD), "virtual time"),
    "hides its memory": costs(5, with_change(
        "const Tensor space = rank.device().empty({largest}",
        "const MemoryScope hidden(rank.device(), MemoryCategory::parameters);"
        "const Tensor space = rank.device().empty({largest * 4}"), "peak"),
}

INFORMED = {**IN_PROCESSES, **ON_THE_LINE, **IN_THE_COMPILER, **IN_FILES, **CHEATS}
