#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/catch.hpp"
#include "tests/gpu/processes.hpp"

using namespace lockstep;
using namespace lockstep::gpu;

namespace {

std::string exchange_for_a_while(Control& control) {
    const int rank = control.rank();
    std::string all;
    for (int turn = 0; turn < 40; ++turn) {
        const std::string mine(static_cast<size_t>(turn * (rank + 1) % 50),
                               static_cast<char>('a' + rank % 26));
        const std::vector<std::string> gathered = control.all_gather(mine);
        const std::string told = control.broadcast(fmt::format("{} {}", turn, rank));
        all += fmt::format("{} {}\n", fmt::join(gathered, ","), told);
    }
    return all;
}

std::string expected_exchange(int size) {
    std::string all;
    for (int turn = 0; turn < 40; ++turn) {
        std::vector<std::string> gathered;
        gathered.reserve(static_cast<size_t>(size));
        for (int rank = 0; rank < size; ++rank)
            gathered.emplace_back(static_cast<size_t>(turn * (rank + 1) % 50),
                                  static_cast<char>('a' + rank % 26));
        all += fmt::format("{} {} 0\n", fmt::join(gathered, ","), turn);
    }
    return all;
}

void require_exchange(int size, const std::string& address) {
    const auto ends = run_processes(
        size, [&](int rank) { return exchange_for_a_while(*join(rank, size, address)); });
    for (const ProcessEnd& end : ends) {
        CHECK(end.said == expected_exchange(size));
        CHECK(end.status == 0);
        CHECK(end.errors.empty());
    }
}

}  // namespace

TEST_CASE("Every process gets every process's bytes, in rank order") {
    for (const int size : {1, 2, 3, 7})
        require_exchange(size, fresh_address());
}

TEST_CASE("Processes meet over TCP by address and by name") {
    for (const char* host : {"127.0.0.1", "localhost"})
        require_exchange(3, fresh_tcp_address(host));
}

TEST_CASE("A single process needs no address") {
    const auto control = join(0, 1, "");
    CHECK(control->all_gather("mine") == std::vector<std::string>{"mine"});
    CHECK(control->broadcast("mine") == "mine");
    CHECK_FALSE(control->stopped());
    CHECK_FALSE(control->claim_text());
}

TEST_CASE("Large messages arrive whole") {
    constexpr size_t kBytes = size_t{64} << 20;
    const auto ends = run_processes(2, [address = fresh_address()](int rank) {
        const auto control = join(rank, 2, address);
        std::string mine(kBytes, static_cast<char>('0' + rank));
        mine.back() = '.';
        const auto all = control->all_gather(mine);
        const std::string told = control->broadcast(mine);
        const bool whole = all.at(0) == told &&
                           all.at(static_cast<size_t>(rank)) == mine &&
                           all.at(1).size() == kBytes && all.at(1).front() == '1' &&
                           all.at(1).back() == '.';
        return std::string(whole ? "whole" : "broken");
    });
    for (const ProcessEnd& end : ends)
        CHECK(end.said == "whole");
}

TEST_CASE("Processes in different exchanges are stopped with a message") {
    const auto ends = run_processes(3, [address = fresh_address()](int rank) {
        const auto control = join(rank, 3, address);
        if (rank == 2) return control->broadcast("");
        return control->all_gather("").front();
    });
    for (const ProcessEnd& end : ends) {
        CHECK(end.status == 1);
        CHECK_THAT(end.said, Catch::Matchers::ContainsSubstring("called broadcast") &&
                                 Catch::Matchers::ContainsSubstring("called all_gather"));
    }
}

TEST_CASE("A process that ends while others wait for it stops them with a message") {
    for (const int leaver : {0, 1}) {
        const auto ends = run_processes(2, [&, address = fresh_address()](int rank) {
            const auto control = join(rank, 2, address);
            if (rank != leaver) control->all_gather("");
            return std::string();
        });
        const ProcessEnd& waiting = ends[static_cast<size_t>(1 - leaver)];
        CHECK(waiting.status == 1);
        CHECK_THAT(waiting.said,
                   Catch::Matchers::ContainsSubstring(fmt::format(
                       "rank {} has ended while rank {} waits for it in all_gather",
                       leaver, 1 - leaver)));
    }
}

TEST_CASE("Processes may end at different times: none is taken for lost") {
    for (const int late : {0, 2}) {
        const auto ends = run_processes(3, [&, address = fresh_address()](int rank) {
            const auto control = join(rank, 3, address);
            if (rank == late) sleep_seconds(0.6);
            control->check();
            return std::string("good");
        });
        for (const ProcessEnd& end : ends) {
            CHECK(end.said == "good");
            CHECK(end.errors.empty());
        }
    }
}

TEST_CASE("Rank 0 waits up to its timeout for a process that does not end") {
    const auto ends = run_processes(2, [address = fresh_address()](int rank) {
        const auto control = join(rank, 2, address, 0.8, 0.2);
        if (rank == 1) sleep_seconds(15);
        return std::string("good");
    });
    CHECK(ends[0].errors ==
          "lockstep: rank 1 did not end within 0.8 seconds after rank 0 ended\n");
    CHECK(ends[1].status == 1);
    CHECK(ends[1].errors.empty());
    CHECK(ends[1].seconds < 100);
}
