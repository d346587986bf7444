#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "lessons/grader/confine/confined_process.hpp"
#include "lessons/grader/confine/fence.hpp"
#include "lessons/grader/confine/room.hpp"
#include "lessons/grader/confine/system_calls.hpp"
#include "src/os/child.hpp"
#include "tests/catch.hpp"
#include "tests/grader/hostile_program.hpp"
#include "tests/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using namespace lockstep::test;
using Catch::Matchers::Equals;
using Catch::Matchers::StartsWith;

namespace {

Outcome run(const std::string& what, const Confinement& confinement = patient()) {
    return hostile_program().run(what, confinement);
}

/// Returns limits for a program whose system calls are not filtered.
Confinement unfiltered(int processes = 0) {
    Confinement confinement = patient();
    confinement.only_computes = false;
    confinement.processes = processes;
    return confinement;
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

/// Returns whether the system refused what the program tried.
bool refused(const std::string& output, const std::string& what) {
    for (const char* error : {"EACCES", "EPERM", "ENOENT", "ESRCH", "EROFS"})
        if (contains(output, what + ": " + error + "\n")) return true;
    return false;
}

pid_t parent_of(pid_t process) {
    std::ifstream status(fmt::format("/proc/{}/status", process));
    pid_t parent = 0;
    for (std::string word; status >> word;)
        if (word == "PPid:") status >> parent;
    REQUIRE(parent > 1);
    return parent;
}

}  // namespace

TEST_CASE("A program that computes for ever is stopped for its processor time",
          "[grader][confined]") {
    const auto [what, only_computes] = GENERATE(
        table<std::string, bool>({{"spin", true}, {"ignore", true}, {"ignore", false}}));
    Confinement confinement = tight();
    confinement.only_computes = only_computes;
    const Outcome outcome = run(what, confinement);
    CHECK(outcome.ending.cause == EndedBy::cpu_limit);
    CHECK_THAT(outcome.sentence, Equals("was stopped after 1 s of processor time"));
    CHECK(outcome.ending.cpu_seconds > 0);
}

TEST_CASE("A program that waits for ever is stopped for the time", "[grader][confined]") {
    const auto* const what = GENERATE("sleep", "close 3");
    Confinement confinement = patient();
    confinement.wall_seconds = 0.5;
    const Outcome outcome = run(what, confinement);
    CHECK(outcome.ending.cause == EndedBy::wall_limit);
    CHECK_THAT(outcome.sentence, Equals("was stopped after 0.5 s"));
    CHECK(outcome.ending.wall_seconds >= 0.5);
}

TEST_CASE("A program's end is described in words", "[grader][confined]") {
    CHECK_THAT(run("exit").sentence, Equals("ended by itself with exit status 0"));
    CHECK(run("exit").ending.succeeded());
    CHECK_THAT(run("exit 3").sentence, Equals("ended by itself with exit status 3"));
    CHECK_THAT(run("abort").sentence, StartsWith("was killed by signal 6 (abort: "));
    CHECK_THAT(run("segfault").sentence,
               StartsWith("was killed by signal 11 (segmentation fault: "));
    CHECK_THAT(run("deep").sentence,
               StartsWith("was killed by signal 11 (segmentation fault: "));
#ifdef __x86_64__
    CHECK_THAT(run("divide").sentence,
               StartsWith("was killed by signal 8 (an impossible"));
#endif
}

TEST_CASE("A program that asks for too much memory gets none", "[grader][confined]") {
    for (const char* what : {"allocate", "touch"}) {
        const Outcome outcome = run(what);
        CHECK(outcome.ending.cause == EndedBy::memory_limit);
        CHECK_THAT(outcome.sentence, Equals("asked for more than 256 MiB of memory"));
    }
    const Outcome caught = run("catch");
    CHECK(caught.ending.succeeded());
    CHECK_THAT(caught.output, Equals("caught\n"));
}

TEST_CASE(
    "A program that prints for ever is stopped, and the start of its output is kept",
    "[grader][confined]") {
    ConfinedProcess process(hostile_program().plan("print", tight()));
    CHECK(process.wait()->cause == EndedBy::cpu_limit);
    CHECK(process.output().size() == 16384);
    CHECK_THAT(process.output(), StartsWith("all work and no play\n"));
    CHECK(process.output(10 << 20).size() == 1 << 20);
}

TEST_CASE("A program that only computes may do nothing else", "[grader][confined]") {
    if (!SystemCallFilter::works()) return;
    const Outcome outcome = run("try all");
    INFO(outcome.output);
    CHECK(outcome.ending.succeeded());
    std::istringstream lines(outcome.output);
    int refused = 0;
    for (std::string line; std::getline(lines, line);)
        if (contains(line, "EPERM"))
            ++refused;
        else
            CHECK((line == "clone3: ENOSYS" || line == "x32: ENOSYS" ||
                   line == "thread: " + std::to_string(EPERM) || line == "system: 127"));
    CHECK(refused == 33);
    CHECK(std::filesystem::exists(hostile_program().folder() / "hostile.cpp"));
    for (const char* made : {"left-behind", "mine", "mine.cpp"})
        CHECK_FALSE(std::filesystem::exists(hostile_program().folder() / made));
    CHECK_FALSE(std::filesystem::exists("/tmp/lockstep-left-behind"));
}

TEST_CASE("A program can start no process, with a filter or without",
          "[grader][confined]") {
    Confinement confinement = GENERATE(patient(), unfiltered());
    confinement.wall_seconds = 0.5;
    const std::string refusal =
        confinement.only_computes && SystemCallFilter::works() ? "EPERM" : "EAGAIN";
    CHECK_THAT(run("fork", confinement).output, Equals("fork: " + refusal + "\n"));
    for (const char* what : {"bomb", "bomb-sleep"}) {
        const Outcome outcome = run(what, confinement);
        CHECK((outcome.ending.cause == EndedBy::cpu_limit ||
               outcome.ending.cause == EndedBy::wall_limit));
    }
    CHECK(hostile_program().left_over().empty());
    const Outcome daemon = run("daemon", confinement);
    // The fork fails, so the parent does not exit: it runs until it is stopped.
    CHECK(daemon.ending.cause == EndedBy::wall_limit);
    CHECK(hostile_program().left_over().empty());
}

TEST_CASE("All processes that a program starts end with it", "[grader][confined]") {
    // The limit is high, because other tests of this user may run fork bombs.
    const Outcome daemon = run("daemon", unfiltered(500));
    CHECK(daemon.ending.succeeded());
    CHECK_THAT(daemon.output, Equals("daemon\n"));
    CHECK(hostile_program().left_over().empty());
    Confinement confinement = unfiltered(20);
    confinement.wall_seconds = 1;
    for (const char* what : {"bomb", "bomb-sleep", "chain"}) {
        run(what, confinement);
        INFO(what);
        CHECK(hostile_program().left_over().empty());
    }
}

TEST_CASE("A program reaches neither its parent's memory nor its parent",
          "[grader][confined]") {
    const Confinement confinement = GENERATE(patient(), unfiltered());
    const Outcome memory = run("parent's memory", confinement);
    CHECK_FALSE(contains(memory.output, "done"));
    const Outcome killed = run("kill parent", confinement);
    if (::geteuid() == 0 || (confinement.only_computes && SystemCallFilter::works()))
        CHECK_THAT(killed.output, Equals("kill: EPERM\n"));
    CHECK(hostile_program().left_over().empty());
}

TEST_CASE("A program with more rights reaches neither the grader nor other folders",
          "[grader][confined]") {
    if (Fence::version() == 0 && !Room::works()) return;
    const Outcome outcome = run("grader", unfiltered());
    INFO(outcome.output);
    CHECK(refused(outcome.output, "read"));
    CHECK(refused(outcome.output, "read its words"));
    CHECK(refused(outcome.output, "write in /tmp"));
    // The fences of older kernels let signals through.
    if (::geteuid() == 0 || Room::works()) CHECK(refused(outcome.output, "signal"));
    // The folder's owner is root, or the user of the program.
    CHECK(contains(outcome.output,
                   ::geteuid() == 0 ? "the folder: EACCES" : "the folder: done"));
}

TEST_CASE("A program reads only its own files and the system's libraries",
          "[grader][confined]") {
    if (Fence::version() == 0 && !Room::works()) return;
    const TemporaryFolder other;
    std::filesystem::permissions(other.path(), std::filesystem::perms{0755});
    other.file("secret", "42");
    for (const Confinement& confinement : {patient(), unfiltered()}) {
        ConfinedPlan plan = hostile_program().plan("read", confinement);
        plan.words[3] = other.path().string();
        ConfinedProcess process(plan);
        process.wait();
        INFO(process.output());
        for (const char* file :
             {"/etc/passwd", "/proc/1/cmdline", "/proc/self/statm", "/proc/self/environ",
              "/", "/tmp", "/home", "/etc", "the secret", "its folder"})
            CHECK(refused(process.output(), file));
        CHECK(contains(process.output(), "its own: done"));

        plan.reads = {other.path()};
        ConfinedProcess allowed(plan);
        allowed.wait();
        CHECK(contains(allowed.output(), "the secret: done"));
    }
}

TEST_CASE("Limits are as requested", "[grader][confined]") {
    CHECK_THAT(run("limits", tight()).output,
               Equals("1 2\n268435456 268435456\n0 0\n0 0\n"));
}

TEST_CASE("A program has only its own descriptors and variables", "[grader][confined]") {
    CHECK_THAT(run("descriptors").output, Equals("0 1 2 read 0\n"));
    const std::string variables = run("environment").output;
    CHECK(std::count(variables.begin(), variables.end(), '\n') == 4);
    CHECK(contains(variables, "HOME=/nonexistent\nLANG=C.UTF-8\nTMPDIR=" +
                                  hostile_program().folder().string() + "\n"));
}

TEST_CASE("A program answers on the descriptor that it is given", "[grader][confined]") {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    const os::Descriptor ours(ends[0]);
    const timeval patience{1000, 0};
    ::setsockopt(ours.number(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    os::Descriptor theirs(ends[1]);
    ConfinedPlan plan = hostile_program().plan("answer", patient());
    plan.given = theirs.number();
    ConfinedProcess process(plan);
    theirs.close();
    CHECK_FALSE(process.wait(os::after(os::Clock::now(), 0.05)));
    REQUIRE(::write(ours.number(), "ping", 4) == 4);
    std::array<char, 8> answer{};
    CHECK(::read(ours.number(), answer.data(), answer.size()) == 4);
    CHECK(process.wait()->succeeded());
    // The end of the file: no other process has the other end.
    CHECK(::read(ours.number(), answer.data(), answer.size()) == 0);
}

TEST_CASE("A program ends when asked, and when its owner ends", "[grader][confined]") {
    ConfinedProcess process(hostile_program().plan("ignore", patient()));
    process.kill();
    CHECK(process.wait()->cause == EndedBy::request);
    { const ConfinedProcess forgotten(hostile_program().plan("sleep", patient())); }
    CHECK(hostile_program().left_over().empty());
}

TEST_CASE("A program that the machine kills is distinguished from one that ends itself",
          "[grader][confined]") {
    enum class Whom { program, keeper };
    const auto killed = [](const std::string& what, const Confinement& confinement,
                           const std::string& waits_for, Whom whom = Whom::program) {
        ConfinedProcess process(hostile_program().plan(what, confinement));
        std::vector<std::string> found;
        for (int i = 0; i < 100'000 && (found.empty() || process.output() != waits_for);
             ++i) {
            ::usleep(10'000);
            found = hostile_program().left_over();
        }
        REQUIRE(found.size() == 1);
        const pid_t program = std::stoi(found.front());
        ::kill(whom == Whom::program ? program : parent_of(program), SIGKILL);
        const Ending ending = *process.wait();
        CHECK(ending.signal == SIGKILL);
        return ending.cause;
    };
    Confinement limits = patient();
    const bool filters = SystemCallFilter::works();
    CHECK(killed("sleep", limits, "") == (filters ? EndedBy::outside : EndedBy::signal));
    // The program that was killed may have filled the machine's memory.
    CHECK(killed("hold", limits, "held\n") == EndedBy::signal);
    // The program may have used up its processor time.
    limits.cpu_seconds = 0.001;
    CHECK(killed("sleep", limits, "") != EndedBy::outside);
    // The program cannot reach its keeper.
    CHECK(killed("hold", limits, "held\n", Whom::keeper) ==
          (filters ? EndedBy::outside : EndedBy::signal));
    limits = unfiltered();
    CHECK(killed("sleep", limits, "") == EndedBy::signal);
}

TEST_CASE("A program ends when the process that started it is killed",
          "[grader][confined]") {
    const ConfinedPlan plan = hostile_program().plan("sleep", patient());
    const pid_t child = ::fork();
    if (child == 0) {
        try {
            const ConfinedProcess process(plan);
            ::kill(::getpid(), SIGKILL);
        } catch (const std::exception&) {
        }
        ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    for (int i = 0; i < 100'000 && !hostile_program().left_over().empty(); ++i)
        ::usleep(10'000);
    CHECK(hostile_program().left_over().empty());
}

TEST_CASE("A program runs in a folder whose parent belongs to another user",
          "[grader][confined]") {
    const TemporaryFolder above;
    ConfinedPlan plan = hostile_program().plan("exit 3", patient());
    plan.folder = above / "work";
    std::filesystem::create_directory(plan.folder);
    std::filesystem::copy(hostile_program().folder() / "program", plan.folder);
    plan.words[0] = (plan.folder / "program").string();
    take_back(plan.folder, plan.confinement.user);
    CHECK(ConfinedProcess(plan).wait()->exit_status == 3);
}

TEST_CASE("A program that cannot be started says why", "[grader][confined]") {
    ConfinedPlan plan = hostile_program().plan("exit", patient());
    plan.words[0] = "./nothing";
    CHECK_THROWS_WITH(ConfinedProcess(plan),
                      "cannot start ./nothing: No such file or directory");
    plan.words[0] = "no-such-program";
    CHECK_THROWS_WITH(ConfinedProcess(plan),
                      "cannot start no-such-program: No such file or directory");
    plan.folder = "/nonexistent";
    plan.words[0] = "true";
    CHECK_THROWS_WITH(ConfinedProcess(plan),
                      "cannot work in /nonexistent: No such file or directory");
}

namespace {

/// Returns whether a process behind this fence, or in this room, can open the file.
bool can_open(const std::filesystem::path& file, const Fence* fence, const Room* room) {
    const pid_t child = room ? Room::fork() : ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        constexpr int kCannotEnter = 2;
        if ((room && !room->enter()) || (fence && !fence->enter())) ::_exit(kCannotEnter);
        ::_exit(::open(file.c_str(), O_RDONLY) < 0 ? 1 : 0);
    }
    const int status = os::wait_for(child);
    REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) < 2));
    return WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("Files that a view hides are not seen, and their neighbours are",
          "[grader][confined]") {
    const test::TemporaryFolder folder;
    std::filesystem::permissions(folder.path(), std::filesystem::perms{0755});
    std::filesystem::create_directories(folder / "lib/lockstep/kit");
    std::filesystem::create_directories(folder / "lib/other");
    for (const char* name :
         {"lib/a.so", "lib/liblockstep.so.0", "lib/lockstep/kit/a.a", "lib/other/b.so"})
        folder.file(name, "x");
    const View view{{folder / "lib"},
                    {},
                    {std::filesystem::canonical(folder / "lib/liblockstep.so.0"),
                     std::filesystem::canonical(folder / "lib/lockstep")}};
    const Fence fence(view);
    const Room room(view);
    for (const bool in_room : {true, false}) {
        if (in_room ? !Room::works() : Fence::version() == 0) continue;
        const auto opens = [&](const char* name) {
            return can_open(folder / name, in_room ? nullptr : &fence,
                            in_room ? &room : nullptr);
        };
        CHECK(opens("lib/a.so"));
        CHECK(opens("lib/other/b.so"));
        CHECK(!opens("lib/lockstep/kit/a.a"));
        // In a room the file is there, and empty.
        CHECK(opens("lib/liblockstep.so.0") == in_room);
    }
}
