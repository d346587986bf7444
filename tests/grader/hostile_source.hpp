#pragma once

namespace lockstep::test {

/// The source of a program. Argument 1 selects what it does, argument 2 marks its
/// processes.
constexpr const char* kHostileSource = R"cpp(
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/bpf.h>
#include <initializer_list>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

    static volatile long kept;
    static char* volatile memory;
    static bool asked(const char* what, char** words) {
        return strcmp(words[1], what) == 0;
    }
    static void spin() {
        for (;;)
            kept = kept + 1;
    }

    static int deeper(int n) {
        volatile char room[4096];
        room[n % 4096] = 1;
        return deeper(n + 1) + room[0];
    }

    static void* allocate(long bytes) {
        char* all = new char[bytes];
        memory = all;
        return all;
    }

    // Prints the error of a call that must fail, or "done" if the call succeeded.
    static void tried(const char* what, long result) {
        printf("%s: %s\n", what, result >= 0 ? "done" : strerrorname_np(errno));
    }
    static void* nothing(void*) {
        return nullptr;
    }

    static void try_all(char** words) {
        char name[] = "left-behind", path[300];
        tried("write a file", open(name, O_WRONLY | O_CREAT, 0644));
        tried("write in /tmp", open("/tmp/lockstep-left-behind", O_RDWR | O_CREAT, 0644));
        tried("truncate", open("hostile.cpp", O_RDONLY | O_TRUNC));
        tried("remove", unlink("hostile.cpp"));
        tried("rename", rename("hostile.cpp", "mine.cpp"));
        tried("make a folder", mkdir("mine", 0755));
        tried("change a mode", chmod("hostile.cpp", 0777));
        tried("link", symlink("hostile.cpp", "mine"));
        tried("fork", syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
        tried("clone3", syscall(435, nullptr, 0));
        tried("vfork", vfork());
        tried("socket", socket(AF_INET, SOCK_STREAM, 0));
        tried("memfd", memfd_create("mine", 0));
        tried("signal", kill(getppid(), 0));
        tried("signal all", kill(-1, 0));
        tried("kill itself", kill(getpid(), SIGKILL));
        tried("kill its thread", syscall(SYS_tgkill, getpid(), getpid(), SIGKILL));
        tried("queue", syscall(SYS_rt_sigqueueinfo, getppid(), SIGTERM, nullptr));
        tried("owner", fcntl(1, F_SETOWN, getppid()));
        tried("ptrace", ptrace(PTRACE_ATTACH, getppid(), 0, 0));
        iovec here{path, 8}, there{words, 8};
        tried("read memory", process_vm_readv(getppid(), &here, 1, &there, 1, 0));
        rlimit more{100, 100};
        tried("limits", setrlimit(RLIMIT_CPU, &more));
        tried("name", prctl(PR_SET_NAME, "sshd"));
        tried("bpf", syscall(SYS_bpf, 0, nullptr, 0));
        tried("io_uring", syscall(425, 1, nullptr));
        tried("keys", syscall(SYS_keyctl, 0, 0, 0, 0, 0));
        tried("queue of messages", syscall(SYS_mq_open, "/mine", O_CREAT | O_RDWR, 0600, 0));
        tried("shared memory", syscall(SYS_shmget, 0, 4096, 01600));
        struct sysinfo machine;
        tried("load of the machine", sysinfo(&machine));
        itimerval soon{{0, 1000}, {0, 1000}};
        tried("timer", setitimer(ITIMER_REAL, &soon, nullptr));
        tried("shut a socket", shutdown(3, SHUT_RDWR));
        tried("copy a descriptor", dup(1));
        tried("write at a place", pwritev(1, &here, 1, 0));
        char* again[] = {words[0], nullptr};
        tried("another program", execv("/bin/true", again));
#ifdef __x86_64__
        tried("x32", syscall(0x40000000 | SYS_getpid));
#endif
        pthread_t thread;
        printf("thread: %d\n", pthread_create(&thread, nullptr, nothing, nullptr));
        printf("system: %d\n", WEXITSTATUS(system("true")));
    }

    int main(int, char** words) {
        setvbuf(stdout, nullptr, _IOLBF, 0);
        if (asked("spin", words)) spin();
        if (asked("sleep", words))
            for (;;)
                sleep(1000);
        if (asked("ignore", words)) {
            for (int i = 1; i < NSIG; ++i)
                signal(i, SIG_IGN);
            spin();
        }
        if (asked("fork", words)) tried("fork", fork());
        if (asked("bomb", words))
            for (;;)
                fork();
        if (asked("bomb-sleep", words))
            for (;;)
                if (fork() == -1) sleep(1);
        if (asked("chain", words))
            for (;;)
                if (fork() > 0) _exit(0);
        if (asked("daemon", words)) {
            if (fork() > 0) {
                usleep(200000);
                _exit(0);
            }
            setsid();
            if (fork() > 0) _exit(0);
            setsid();
            for (int i = 1; i < NSIG; ++i)
                signal(i, SIG_IGN);
            puts("daemon");
            for (;;)
                sleep(1000);
        }
        if (asked("allocate", words)) allocate(1L << 40);
        if (asked("touch", words))
            for (;;)
                memset(allocate(1 << 20), 1, 1 << 20);
        if (asked("hold", words)) {
            memset(allocate(160 << 20), 1, 160 << 20);
            puts("held");
            for (;;)
                pause();
        }
        if (asked("catch", words)) {
            try {
                allocate(1L << 40);
            } catch (const std::bad_alloc&) {
                puts("caught");
            }
            return 0;
        }
        if (asked("exit", words)) exit(0);
        if (asked("exit 3", words)) exit(3);
        if (asked("abort", words)) abort();
        if (asked("segfault", words)) *static_cast<volatile int*>(nullptr) = 1;
        if (asked("deep", words)) return deeper(0);
        if (asked("divide", words)) return 1000 / static_cast<int>(kept);
        if (asked("print", words))
            for (;;)
                puts("all work and no play");
        if (asked("try all", words)) try_all(words);
        if (asked("parent's memory", words)) {
            char path[64];
            snprintf(path, sizeof path, "/proc/%d/mem", getppid());
            tried("read", open(path, O_RDONLY));
            tried("write", open(path, O_RDWR));
        }
        if (asked("grader", words)) {
            char path[64];
            const int grader = atoi(words[3]);
            snprintf(path, sizeof path, "/proc/%d/mem", grader);
            tried("read", open(path, O_RDONLY));
            snprintf(path, sizeof path, "/proc/%d/cmdline", grader);
            tried("read its words", open(path, O_RDONLY));
            tried("signal", kill(grader, 0));
            tried("write in /tmp", open("/tmp/lockstep-left-behind", O_RDWR | O_CREAT, 0644));
            tried("write in the folder", open("note", O_RDWR | O_CREAT, 0644));
        }
        if (asked("read", words)) {
            for (const char* file : {"/etc/passwd", "/proc/1/cmdline", "/proc/self/statm",
                                     "/proc/self/environ", "/", "/tmp", "/home", "/etc"})
                tried(file, open(file, O_RDONLY));
            char path[400];
            snprintf(path, sizeof path, "%s/secret", words[3]);
            tried("the secret", open(path, O_RDONLY));
            tried("its folder", open(words[3], O_RDONLY));
            tried("its own", open(words[0], O_RDONLY));
        }
        if (asked("kill parent", words)) tried("kill", kill(getppid(), SIGKILL));
        if (asked("limits", words))
            for (const int which : {RLIMIT_CPU, RLIMIT_AS, RLIMIT_NPROC, RLIMIT_CORE}) {
                rlimit now;
                getrlimit(static_cast<__rlimit_resource_t>(which), &now);
                printf("%ld %ld\n", static_cast<long>(now.rlim_cur),
                       static_cast<long>(now.rlim_max));
            }
        if (asked("descriptors", words)) {
            for (int i = 0; i < 64; ++i)
                if (fcntl(i, F_GETFD) >= 0) printf("%d ", i);
            char letter;
            printf("read %zd\n", read(0, &letter, 1));
        }
        if (asked("environment", words))
            for (char** at = environ; *at; ++at)
                puts(*at);
        if (asked("answer", words)) {
            char text[16] = "";
            const ssize_t got = read(3, text, sizeof text);
            tried("write", write(3, text, got < 0 ? 0 : got));
        }
        if (asked("close 3", words)) {
            close(3);
            sleep(1000);
        }
    }
)cpp";

}  // namespace lockstep::test
