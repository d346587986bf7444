#include <signal.h>

#include <fmt/format.h>

#include "tests/catch.hpp"
#include "tests/gpu/processes.hpp"

using namespace lockstep;
using namespace lockstep::gpu;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

std::string wait_for_the_stop(const Control& control) {
    for (;;) {
        control.check();
        sleep_seconds(0.002);
    }
}

}  // namespace

TEST_CASE("A failure on any rank stops all with its text and status") {
    for (const int origin : {0, 1, 2}) {
        const auto ends = run_processes(3, [&, address = fresh_address()](int rank) {
            const auto control = join(rank, 3, address);
            if (rank == origin) control->fail({rank, 40 + rank, "it broke\n"});
            // Some learn of it in an exchange, some in a check.
            if (rank == 1) control->all_gather("");
            return wait_for_the_stop(*control);
        });
        for (const ProcessEnd& end : ends) {
            CHECK(end.status == 40 + origin);
            CHECK(end.said ==
                  fmt::format("rank {}, status {}: it broke\n", origin, 40 + origin));
            CHECK(end.errors.empty());
            CHECK(end.seconds < 3);
        }
    }
}

TEST_CASE("Of two failures at once all see the same one") {
    const auto ends = run_processes(4, [address = fresh_address()](int rank) {
        const auto control = join(rank, 4, address);
        control->all_gather("");
        if (rank % 2 == 1) control->fail({rank, 50 + rank, "no"});
        return wait_for_the_stop(*control);
    });
    CHECK((ends[0].status == 51 || ends[0].status == 53));
    for (const ProcessEnd& end : ends)
        CHECK(end.said == ends[0].said);
}

TEST_CASE("A process that is killed is named to the others") {
    const auto ends = run_processes(3, [address = fresh_address()](int rank) {
        const auto control = join(rank, 3, address);
        control->all_gather("");
        if (rank == 2) kill_this_process();
        return control->all_gather(std::string(1 << 20, 'x')).front();
    });
    CHECK(ends[2].status == -SIGKILL);
    for (const int rank : {0, 1}) {
        const ProcessEnd& end = ends[static_cast<size_t>(rank)];
        CHECK(end.status == 1);
        CHECK_THAT(end.said, StartsWith("rank 2, status 1: rank 2 was lost: its process "
                                        "ended without a word"));
        CHECK(end.seconds < 3);
    }
}

TEST_CASE("What others report just after a loss comes first, and the loss beside it") {
    const auto ends = run_processes(3, [address = fresh_address()](int rank) {
        const auto control = join(rank, 3, address);
        control->all_gather("");
        if (rank == 2) kill_this_process();
        if (rank == 1) {
            sleep_seconds(0.1);
            control->fail({1, 7, "its peer is silent"});
        }
        return wait_for_the_stop(*control);
    });
    CHECK_THAT(ends[0].said,
               StartsWith("rank 1, status 7: its peer is silent\nrank 2 was lost"));
}

TEST_CASE("When rank 0 is killed the others stop") {
    const auto ends = run_processes(3, [address = fresh_address()](int rank) {
        const auto control = join(rank, 3, address);
        control->all_gather("");
        if (rank == 0) kill_this_process();
        return wait_for_the_stop(*control);
    });
    for (const int rank : {1, 2})
        CHECK_THAT(ends[static_cast<size_t>(rank)].said,
                   StartsWith("rank 0, status 1: rank 0 was lost"));
}

TEST_CASE("A process that stalls is explained from what all say of themselves") {
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
            CHECK(end.seconds < 4);
        }
    }
}

TEST_CASE("A stall without an explanation says which rank, and for how long") {
    for (const int size : {1, 2}) {
        const auto ends = run_processes(size, [&, address = fresh_address()](int rank) {
            const auto control = join(rank, size, address, 0.8);
            control->begin_watching();
            while (rank == 1) {  // it goes on, so it is not this one
                control->progress();
                control->check();
                sleep_seconds(0.01);
            }
            return wait_for_the_stop(*control);
        });
        for (const ProcessEnd& end : ends)
            CHECK(end.said ==
                  "rank 0, status 1: rank 0 has made no progress for 0.8 seconds\n");
    }
}

TEST_CASE("One that cannot answer does not hold up the explanation for long") {
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
    CHECK_THAT(ends[0].said, Contains("rank 0: here") && !Contains("rank 1: here"));
    CHECK(ends[0].status == 1);
    CHECK(ends[1].status == 1);
}

TEST_CASE("Progress, the end of watching, and waiting for others are no stall") {
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

TEST_CASE("A main thread that does not come back is ended, and the text printed once") {
    for (const int hung : {0, 1}) {
        const auto ends = run_processes(2, [&, address = fresh_address()](int rank) {
            const auto control = join(rank, 2, address, 10, 0.3);
            control->all_gather("");
            if (rank != hung) control->fail({rank, 6, "it broke"});
            if (rank == hung) sleep_seconds(15);
            return wait_for_the_stop(*control);
        });
        CHECK(ends[0].errors == (hung == 0 ? "it broke\n" : ""));
        CHECK(ends[1].errors.empty());
        for (const ProcessEnd& end : ends) {
            CHECK(end.status == 6);
            CHECK(end.seconds < 4);
        }
    }
}

TEST_CASE(
    "Where the stop was seen but the text not claimed, ending a process prints it") {
    for (const bool claims : {false, true}) {
        const auto ends = run_processes(1, [&](int rank) {
            const auto control = join(rank, 1, "", 10, 0.3);
            control->fail({0, 6, "it broke"});
            CHECK_THROWS_AS(wait_for_the_stop(*control), RunStopped);
            if (claims) CHECK(control->claim_text());
            sleep_seconds(15);
            return std::string();
        });
        CHECK(ends[0].status == 6);
        CHECK(ends[0].errors == (claims ? "" : "it broke\n"));
    }
}

TEST_CASE("A stop that the main thread did not see is printed when it leaves") {
    const auto ends = run_processes(2, [address = fresh_address()](int rank) {
        const auto control = join(rank, 2, address);
        sleep_seconds(rank == 0 ? 0.5 : 0.2);
        if (rank == 1) control->fail({1, 6, "it broke"});
        return std::string("done");
    });
    CHECK(ends[0].said == "done");
    CHECK(ends[0].errors == "it broke\n");
    CHECK(ends[1].errors.empty());
}
