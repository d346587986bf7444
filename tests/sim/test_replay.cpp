#include <memory>

#include "sim/cluster.hpp"
#include "sim/replay.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"

namespace lockstep::sim {

namespace {

/// Writes by hand a log of calls, as a communicator of real devices does.
class Script {
  public:
    Script& all_reduce(std::int64_t count, SourceLine at = SourceLine::here()) {
        CommOperation operation;
        operation.verb = Verb::all_reduce;
        operation.count = count;
        operation.at = at;
        return launch({&operation, 1});
    }
    Script& message(Verb verb, int peer, SourceLine at = SourceLine::here()) {
        stops_in(verb, peer, at);
        log_->launch_returned();
        return *this;
    }
    /// Logs a launch that does not return.
    Script& stops_in(Verb verb, int peer, SourceLine at = SourceLine::here()) {
        CommOperation operation;
        operation.verb = verb;
        operation.count = 4;
        operation.peer = peer;
        operation.at = at;
        work_ = log_->launched(communicator_, {&operation, 1});
        return *this;
    }
    Script& exchange(int to, int from, SourceLine at = SourceLine::here()) {
        CommOperation operations[2];
        operations[0].verb = Verb::send;
        operations[0].peer = to;
        operations[1].verb = Verb::recv;
        operations[1].peer = from;
        for (CommOperation& operation : operations) {
            operation.count = 4;
            operation.at = at;
        }
        return launch(operations);
    }
    Script& split(int color, SourceLine at = SourceLine::here()) {
        communicator_ = log_->split(0, {color, 0, "half", {}, false}, at);
        return *this;
    }
    Script& wait(SourceLine at = SourceLine::here()) {
        log_->waited(work_, at);
        return *this;
    }
    RankLog end() {
        log_->ended();
        return stop();
    }
    RankLog stop() const { return read_log(log_->bytes()); }

  private:
    Script& launch(std::span<const CommOperation> operations) {
        work_ = log_->launched(communicator_, operations);
        log_->launch_returned();
        return *this;
    }

    std::shared_ptr<OperationLog> log_ = std::make_shared<OperationLog>(2);
    int communicator_ = 0;
    std::int64_t work_ = 0;
};

}  // namespace

TEST_CASE("A log is read back from its bytes unchanged", "[comm]") {
    const int here = __LINE__ + 1;
    const RankLog log = Script().all_reduce(7).wait().split(1).exchange(1, 2).stop();
    REQUIRE(log.calls.size() == 5);
    CHECK(log.ranks == 2);
    CHECK_FALSE(log.ended);
    CHECK(log.complete);
    CHECK(text_of(log.calls[0]) == "all_reduce(sum, 7 x f32)");
    CHECK(log.calls[0].at == SourceLine{__FILE__, here});
    CHECK(log.calls[1].kind == LoggedCall::Kind::wait);
    CHECK(log.calls[1].work == log.calls[0].work);
    CHECK(log.calls[2].split.name == "half");
    CHECK(log.calls[3].communicator == 1);
    CHECK(log.calls[3].work == log.calls[4].work);
    CHECK(text_of(log.calls[4]) == "recv(4 x f32, from rank 2)");
    CHECK_THROWS_AS(read_log("no log"), UsageError);
}

TEST_CASE("Matching calls show no mistake, however far ranks have come", "[sim]") {
    const auto correct = [] {
        return Script().all_reduce(7).wait().split(0).all_reduce(9).wait();
    };
    CHECK_FALSE(replay({correct().end(), correct().end(), correct().end()}));
    CHECK_FALSE(replay({correct().stop(), correct().end()}));
    CHECK_FALSE(replay(
        {Script().exchange(1, 1).wait().stop(), Script().exchange(0, 0).wait().stop()}));
}

TEST_CASE("A mistake that hangs real devices is explained from their logs", "[sim]") {
    const auto counts = replay(
        {Script().all_reduce(7).wait().stop(), Script().all_reduce(8).wait().stop()});
    REQUIRE(counts);
    CHECK(counts->fault == "F02");

    const auto circle = replay(
        {Script().message(Verb::send, 1).wait().message(Verb::recv, 1).wait().stop(),
         Script().message(Verb::send, 0).wait().message(Verb::recv, 0).wait().stop()});
    REQUIRE(circle);
    CHECK(circle->fault == "F11");

    const auto inside = replay({Script().stops_in(Verb::send, 1).stop(),
                                Script().stops_in(Verb::send, 0).stop()});
    REQUIRE(inside);
    CHECK(inside->fault == "F11");

    const auto early = replay({Script().all_reduce(7).wait().stop(), Script().end()});
    REQUIRE(early);
    CHECK(early->fault == "F07");
    CHECK(early->sentence.find("rank 1, which has ended without that call; rank 1 "
                               "launched no operation") != std::string::npos);
}

TEST_CASE("A rank that computes for ever is distinguished from one that has ended",
          "[sim]") {
    const auto elsewhere =
        replay({Script().all_reduce(7).wait().all_reduce(7).wait().stop(),
                Script().all_reduce(7).wait().stop()});
    REQUIRE(elsewhere);
    CHECK(elsewhere->fault == "F07");
    CHECK(elsewhere->sentence.find("for rank 1, which has not reached that call; the "
                                   "last operation of rank 1 was all_reduce") !=
          std::string::npos);
    CHECK(elsewhere->text().find("makes no progress after its last operation") !=
          std::string::npos);
    CHECK(elsewhere->cause.find("computes, loops or waits") != std::string::npos);
}

}  // namespace lockstep::sim
