#include <cstdio>
#include <signal.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/catch.hpp"
#include "tests/gpu/processes.hpp"

using namespace lockstep;
using namespace lockstep::gpu;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

std::string wait_for_the_stop(const Control& control) {
    for (;;) {
        control.check();
        sleep_seconds(0.002);
    }
}

}  // namespace

TEST_CASE("A stalled process is explained from the reports of all") {
    for (const int origin : {0, 2}) {
        const auto ends = run_processes(3, [&, address = fresh_address()](int rank) {
            const auto control = join(rank, 3, address, 0.8);
            control->set_describe([=] { return fmt::format("I am {}", rank); });
            control->set_explain([](const std::vector<std::string>& all, int stalled) {
                return fmt::format("{} stalled; {}, {}, {}", stalled, all.at(0),
                                   all.at(1), all.at(2));
            });
            control->all_gather("");
            if (rank == origin) control->begin_watching();
            return wait_for_the_stop(*control);
        });
        for (const ProcessEnd& end : ends) {
            CHECK(end.said ==
                  fmt::format("rank {0}, status 1: {0} stalled; I am 0, I am 1, "
                              "I am 2\n",
                              origin));
            CHECK(end.seconds > 0.75);
            CHECK(end.seconds < 100);
        }
    }
}

TEST_CASE("A stall without an explanation names the rank and the time") {
    for (const int size : {1, 2}) {
        const auto ends = run_processes(size, [&, address = fresh_address()](int rank) {
            const auto control = join(rank, size, address, 0.8);
            if (rank == 0) control->begin_watching();
            return wait_for_the_stop(*control);
        });
        for (const ProcessEnd& end : ends)
            CHECK(end.said ==
                  "rank 0, status 1: lockstep: rank 0 has made no progress for 0.8 "
                  "seconds\n");
    }
}

TEST_CASE("A process that cannot answer does not delay the explanation for long") {
    const auto ends = run_processes(2, [address = fresh_address()](int rank) {
        const auto control = join(rank, 2, address, 0.8);
        control->set_describe([=] {
            if (rank == 1) sleep_seconds(2.6);
            return std::string("here");
        });
        control->all_gather("");
        if (rank == 0) control->begin_watching();
        return wait_for_the_stop(*control);
    });
    CHECK_THAT(ends[0].said,
               ContainsSubstring("rank 0: here") && !ContainsSubstring("rank 1: here"));
    CHECK(ends[0].status == 1);
    CHECK(ends[1].status == 1);
}

TEST_CASE("Progress, the end of the watch, and waiting for others are no stall") {
    const auto ends = run_processes(2, [address = fresh_address()](int rank) {
        const auto control = join(rank, 2, address, 0.6);
        control->begin_watching();
        for (int step = 0; step < 40; ++step) {
            control->progress();
            sleep_seconds(0.02);
        }
        if (rank == 1) {
            control->end_watching();
            sleep_seconds(0.8);
        }
        control->all_gather("");
        control->end_watching();
        sleep_seconds(0.7);
        return std::string("good");
    });
    for (const ProcessEnd& end : ends)
        CHECK(end.said == "good");
}

TEST_CASE("A process that waits while another works is not stopped") {
    for (const int waits : {0, 1}) {
        const auto ends = run_processes(2, [&, address = fresh_address()](int rank) {
            const auto control = join(rank, 2, address, 0.4);
            control->all_gather("");
            control->begin_watching();
            for (int step = 0; step < 70; ++step) {
                if (rank != waits) control->progress();
                sleep_seconds(0.02);
            }
            control->end_watching();
            control->all_gather("");
            return std::string("good");
        });
        for (const ProcessEnd& end : ends)
            CHECK(end.said == "good");
    }
}

TEST_CASE(
    "A run in which all processes stall is stopped, and the first stalled one is named") {
    const auto ends = run_processes(3, [address = fresh_address()](int rank) {
        const auto control = join(rank, 3, address, 0.6);
        control->all_gather("");
        if (rank < 2) control->begin_watching();
        if (rank == 2) return control->all_gather("").front();
        for (int step = 0; rank == 0 && step < 40; ++step) {
            control->progress();
            sleep_seconds(0.02);
        }
        return wait_for_the_stop(*control);
    });
    for (const ProcessEnd& end : ends) {
        CHECK(
            end.said ==
            "rank 1, status 1: lockstep: rank 1 has made no progress for 0.6 seconds\n");
        CHECK(end.seconds > 1.3);
        CHECK(end.seconds < 100);
    }
}

TEST_CASE("A process that stalls for ten times the timeout stops the others") {
    const auto ends = run_processes(2, [address = fresh_address()](int rank) {
        const auto control = join(rank, 2, address, 0.3);
        control->all_gather("");
        control->begin_watching();
        for (;;) {
            if (rank == 0) control->progress();
            control->check();
            sleep_seconds(0.02);
        }
        return std::string();
    });
    for (const ProcessEnd& end : ends) {
        CHECK_THAT(end.said,
                   StartsWith("rank 1, status 1: lockstep: rank 1 has made no progress"));
        CHECK(end.seconds > 2.9);
        CHECK(end.seconds < 100);
    }
}

namespace {

/// Checks that ranks 0 to 2, except `stopped`, report this rank as lost, and that one of
/// them prints the report to standard error.
void check_reported_as_lost(const std::vector<ProcessEnd>& ends, int stopped) {
    const std::string text = fmt::format(
        "lockstep: rank {} does not answer: its process is stopped or "
        "its machine cannot be reached\n",
        stopped);
    const int speaker = stopped == 0 ? 1 : 0;
    for (const int rank : {0, 1, 2}) {
        const ProcessEnd& end = ends[static_cast<size_t>(rank)];
        INFO(rank);
        if (rank == stopped) continue;
        CHECK(end.status == 1);
        CHECK(end.said == fmt::format("rank {}, status 1: {}", stopped, text));
        CHECK(end.errors == (rank == speaker ? text : ""));
        CHECK(end.seconds > 2.5);
        CHECK(end.seconds < 100);
    }
}

}  // namespace

TEST_CASE("A process that is stopped while others wait is reported once as lost") {
    for (const int stopped : {0, 2}) {
        const auto ends = run_processes(4, [&, address = fresh_address()](int number) {
            if (number == 3) {  // later resumes the stopped process
                auto pid = join(1, 2, address + "-pid")->all_gather("").at(0);
                sleep_seconds(5);
                kill(std::stoi(pid), SIGCONT);
                return pid;
            }
            const auto control = join(number, 3, address, 1.5, 0.3);
            control->all_gather("");
            if (number == stopped) {
                join(0, 2, address + "-pid")->all_gather(std::to_string(getpid()));
                raise(SIGSTOP);
            }
            try {
                control->all_gather("");
            } catch (const RunStopped& stop) {
                if (control->claim_text()) std::fputs(stop.what(), stderr);
                throw;
            }
            return std::string();
        });
        check_reported_as_lost(ends, stopped);
    }
}

TEST_CASE("If the explanation fails, the short message is printed") {
    const auto ends = run_processes(1, [](int) {
        const auto control = join(0, 1, "", 0.3);
        control->set_describe([] { return std::string("here"); });
        control->set_explain([](const auto& all, int) { return all.at(7); });
        control->begin_watching();
        return wait_for_the_stop(*control);
    });
    CHECK(ends[0].said ==
          "rank 0, status 1: lockstep: rank 0 has made no progress for 0.3 seconds\n"
          "  rank 0: here\n");
}
