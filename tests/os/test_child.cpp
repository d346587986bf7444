#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "src/os/child.hpp"
#include "src/os/deadline.hpp"
#include "src/os/environment.hpp"
#include "src/os/held_signals.hpp"
#include "tests/catch.hpp"

using namespace lockstep::os;

TEST_CASE("A child's output, errors and status come back", "[os]") {
    const Child child = run_child({"sh", "-c", "echo out; echo err >&2; cat; exit 7"});
    CHECK(child.output == "out\n");
    CHECK(child.errors == "err\n");
    CHECK(child.status == 7);
    CHECK(child.interrupted_by == 0);
}

TEST_CASE("The status of a child that a signal ends is 128 plus the signal's number",
          "[os]") {
    CHECK(run_child({"sh", "-c", "kill -9 $$"}).status == 128 + SIGKILL);
}

TEST_CASE("A child that takes too long is killed", "[os]") {
    const auto start = Clock::now();
    CHECK(run_child({"sleep", "30"}, 0.2).status == 128 + SIGKILL);
    CHECK(Clock::now() - start < std::chrono::seconds(10));
}

TEST_CASE("A missing program is an error with its name", "[os][errors]") {
    CHECK_THROWS_AS(run_child({"no-such-program"}), std::system_error);
    CHECK_THROWS_WITH(run_child({"no-such-program"}),
                      Catch::Matchers::StartsWith("no-such-program"));
}

TEST_CASE("A signal to this process while a child runs is passed on and reported",
          "[os]") {
    const Child child = run_child(
        {"sh", "-c",
         "trap 'echo asked; exit 3' TERM; kill -TERM $PPID; sleep 10 >&- 2>&- & wait"});
    CHECK(child.interrupted_by == SIGTERM);
    CHECK(child.output == "asked\n");
    CHECK(child.status == 3);
}

TEST_CASE("HeldSignals blocks signals while it lives, then restores the mask", "[os]") {
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, nullptr, &before);
    {
        const HeldSignals signals;
        CHECK_FALSE(signals.take());
        ::kill(::getpid(), SIGTERM);
        const auto taken = signals.take();
        REQUIRE(taken);
        CHECK(taken->ssi_signo == SIGTERM);
        CHECK(sent_by_process(*taken));
    }
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    CHECK(sigismember(&now, SIGTERM) == sigismember(&before, SIGTERM));
}

TEST_CASE("The end of a child is waited for", "[os]") {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(5);
    CHECK(WEXITSTATUS(wait_for(child)) == 5);
}

TEST_CASE("Words for exec end with a null pointer", "[os]") {
    const std::vector<std::string> words = {"one", ""};
    const std::vector<char*> pointers = exec_words(words);
    REQUIRE(pointers.size() == 3);
    CHECK(pointers[0] == std::string("one"));
    CHECK(pointers[1] == std::string());
    CHECK(pointers[2] == nullptr);
}

TEST_CASE("Programs are found on the PATH", "[os]") {
    CHECK(find_on_path("sh").ends_with("/sh"));
    CHECK(find_on_path("no-such-program").empty());
    CHECK(search_path() == variable("PATH"));
}

TEST_CASE("An environment with variables has each once", "[os]") {
    ::setenv("LOCKSTEP_TEST", "old", 1);
    CHECK(variable("LOCKSTEP_TEST") == "old");
    const auto all = environment_with({{"LOCKSTEP_TEST", "new"}, {"LOCKSTEP_TEST2", ""}});
    const auto count = [&](const std::string& entry) {
        return std::count(all.begin(), all.end(), entry);
    };
    CHECK(count("LOCKSTEP_TEST=new") == 1);
    CHECK(count("LOCKSTEP_TEST=old") == 0);
    CHECK(count("LOCKSTEP_TEST2=") == 1);
    ::unsetenv("LOCKSTEP_TEST");
    CHECK_FALSE(variable("LOCKSTEP_TEST"));
}
