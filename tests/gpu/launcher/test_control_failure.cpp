#include <cstdio>
#include <signal.h>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/launcher/control_service.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/processes.hpp"

using namespace lockstep;
using namespace lockstep::gpu;
using Catch::Matchers::StartsWith;

namespace {

std::string wait_for_the_stop(const Control& control) {
    for (;;) {
        control.check();
        sleep_seconds(0.002);
    }
}

}  // namespace

TEST_CASE("A failure on any rank stops all ranks with its text and status") {
    for (const int origin : {0, 1, 2}) {
        const auto ends = run_processes(3, [&, address = fresh_address()](int rank) {
            const auto control = join(rank, 3, address);
            if (rank == origin) control->fail({rank, 40 + rank, "it broke\n"});
            // Some ranks learn of the failure in an exchange, other ranks in a check.
            if (rank == 1) control->all_gather("");
            return wait_for_the_stop(*control);
        });
        for (const ProcessEnd& end : ends) {
            CHECK(end.status == 40 + origin);
            CHECK(end.said ==
                  fmt::format("rank {}, status {}: it broke\n", origin, 40 + origin));
            CHECK(end.errors.empty());
            CHECK(end.seconds < 100);
        }
    }
}

TEST_CASE("If two ranks fail at once, all ranks see the same failure") {
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
        CHECK_THAT(end.said, StartsWith("rank 2, status 1: lockstep: rank 2 was lost: "
                                        "its process ended unexpectedly"));
        CHECK(end.seconds < 100);
    }
}

TEST_CASE("Reports shortly after a loss are printed first, and the loss after them") {
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
    CHECK_THAT(
        ends[0].said,
        StartsWith("rank 1, status 7: its peer is silent\nlockstep: rank 2 was lost"));
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
                   StartsWith("rank 0, status 1: lockstep: rank 0 was lost"));
}

TEST_CASE("A main thread that does not return is ended, and the text is printed once") {
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
            CHECK(end.seconds < 100);
        }
    }
}

TEST_CASE(
    "If the stop was seen but its text was not printed, the process prints it at its "
    "end") {
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

TEST_CASE("A stop that the main thread did not see is printed when the process leaves") {
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

TEST_CASE("Rank 0 prints the cause before another process ends") {
    for (const std::string does : {"hangs", "claims late", "leaves"}) {
        const auto ends = run_processes(2, [&, address = fresh_address()](int rank) {
            auto control = join(rank, 2, address);
            const auto pids = control->all_gather(std::to_string(getpid()));
            if (rank == 1) {
                control->fail({1, 6, "it broke"});
                control.reset();
                kill(std::stoi(pids[0]), SIGKILL);  // as a launcher does
                return std::string();
            }
            sleep_seconds(does == "hangs" ? 15 : 0.2);
            if (does == "leaves") return std::string();
            CHECK(control->claim_text());
            sleep_seconds(0.01);
            std::fputs("it broke\n", stderr);
            sleep_seconds(15);
            return std::string();
        });
        INFO(does);
        CHECK(ends[0].errors == "it broke\n");
        CHECK(ends[1].errors.empty());
        CHECK(ends[1].seconds > (does == "hangs" ? 0.45 : 0.15));
        CHECK(ends[1].seconds < 100);
    }
}

TEST_CASE(
    "Without a message from rank 0, a process leaves a stopped run after the grace "
    "period") {
    const auto ends = run_processes(2, [address = fresh_address()](int rank) {
        auto control = join(rank, 2, address, 10, 0.2);
        const auto pids = control->all_gather(std::to_string(getpid()));
        if (rank == 0) return wait_for_the_stop(*control);
        control->fail({1, 6, "it broke"});
        CHECK_THROWS_AS(wait_for_the_stop(*control), RunStopped);
        kill(std::stoi(pids[0]), SIGSTOP);
        control.reset();
        kill(std::stoi(pids[0]), SIGKILL);
        return std::string("left");
    });
    CHECK(ends[1].said == "left");
    CHECK(ends[1].seconds < 100);
}

namespace {

/// A service whose first `failures` calls of serve() throw.
class BrokenService final : public ControlService {
  public:
    BrokenService(ControlShared& shared, int failures)
        : ControlService(shared), failures_(failures) {}
    std::string told;

  private:
    std::vector<Connection*> connections() override { return {}; }
    void act_on(Message post) override {
        if (post.kind == MessageKind::failure) told += unpack<Failure>(*post.body).text;
    }
    void report(Pace, Clock::time_point) override {}
    void serve(Clock::time_point) override {
        if (failures_-- > 0) throw std::runtime_error("no memory");
    }
    Clock::time_point next_due() const override { return Clock::now(); }
    bool finished(Clock::time_point) const override { return true; }

    int failures_;
};

}  // namespace

TEST_CASE("A control thread that fails tells the others") {
    const std::string text = "lockstep: the control line of rank 1 broke: no memory";
    for (const int failures : {1, 9}) {
        ControlShared shared(place(1, 2, ""), {});
        shared.leave();
        BrokenService service(shared, failures);
        service.run();
        CHECK_THAT(service.told, StartsWith(text));
        CHECK(shared.failure().text == text + "\n");
    }
}
