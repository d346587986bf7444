#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/launcher/connection.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/launcher/raw_line.hpp"
#include "tests/gpu/processes.hpp"

using namespace lockstep;
using namespace lockstep::gpu;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

/// Sends this text to rank 0, and returns the reply.
std::string talk(const std::string& address, const std::string& text) {
    const Descriptor socket = connect_to(parse_address(address, "the test's address"),
                                         Clock::now() + std::chrono::seconds(100));
    fcntl(socket.number(), F_SETFL, 0);
    std::string reply;
    if (!text.empty() && write(socket.number(), text.data(), text.size()) ==
                             static_cast<ssize_t>(text.size()))
        for (char letter = 0; read(socket.number(), &letter, 1) == 1;)
            reply += letter;
    return reply;
}

std::string hello_text(const std::string& address) {
    const Message message(MessageKind::hello, pack(hello_of(place(1, 2, address))));
    return header_bytes(message) + *message.body;
}

}  // namespace

TEST_CASE("Rank 0 names the missing ranks, and tells the others") {
    const auto ends = run_processes(3, [address = fresh_address()](int number) {
        const int rank = number == 1 ? 3 : number;  // ranks 1 and 4 are missing
        const auto control = join(rank, 5, address, 0.8);
        return std::string("joined");
    });
    CHECK(ends[0].status == 99);
    CHECK_THAT(ends[0].said,
               StartsWith("ranks 1, 4 of 5 did not come to unix:lockstep-test"));
    CHECK_THAT(ends[0].said, ContainsSubstring("within 0.8 seconds"));
    for (const int number : {1, 2}) {
        const ProcessEnd& end = ends[static_cast<size_t>(number)];
        CHECK(end.status == 3);
        CHECK_THAT(end.said, StartsWith("rank 0, status 3: ranks 1, 4 of 5"));
    }
    for (const ProcessEnd& end : ends) {
        CHECK(end.errors.empty());
        CHECK(end.seconds < 100);
    }
}

TEST_CASE("A missing rank 0 is reported") {
    for (const std::string& address : {fresh_address(), fresh_tcp_address("127.0.0.1")}) {
        const auto start = Clock::now();
        CHECK_THROWS_WITH(join(1, 2, address, 0.3),
                          StartsWith("rank 1 found no rank 0 at " + address +
                                     " within 0.3 seconds: it did not start"));
        CHECK_THROWS_AS(join(1, 2, address, 0.05), MissingError);
        CHECK(Clock::now() - start < std::chrono::seconds(100));
    }
}

TEST_CASE("A process lost during the meeting stops the others") {
    const auto ends = run_processes(2, [address = fresh_address()](int rank) {
        if (rank == 0) return join(0, 3, address)->all_gather("").front();
        RawLine line(address);
        line.enter(hello_of(place(1, 3, address)));
        return std::string();
    });
    CHECK_THAT(ends[0].said, StartsWith("rank 1, status 1: lockstep: rank 1 was lost"));
}

TEST_CASE("Strangers that send rubbish or nothing do not disturb a meeting") {
    const std::string address = fresh_tcp_address("127.0.0.1");
    const auto ends = run_processes(3, [&](int number) {
        if (number < 2) {
            if (number == 1) sleep_seconds(0.5);
            return join(number, 2, address)->all_gather(number ? "b" : "a").at(1);
        }
        std::string told = talk(address, "GET / HTTP/1.1\r\nHost: rank0\r\n\r\n");
        told += talk(address, std::string(5000, '\xff'));
        told += talk(address, hello_text(address).replace(16, 1, "\xff"));
        told += talk(address, "");
        return told;
    });
    CHECK(ends[0].said == "b");
    CHECK(ends[1].said == "b");
    CHECK(ends[2].said.empty());
}

TEST_CASE("Processes of other runs are rejected with a message") {
    const std::string address = fresh_address();
    const auto ends = run_processes(3, [&](int number) {
        if (number < 2) {
            if (number == 1) sleep_seconds(0.6);
            return join(number, 2, address)->all_gather(number ? "b" : "a").at(1);
        }
        std::string told;
        const Hello own = hello_of(place(1, 2, address));
        Hello larger = own, first = own, newer = own;
        larger.size = 3;
        first.rank = 0;
        ++newer.version;
        const Hello elsewhere = hello_of(place(1, 2, "elsewhere"));
        for (const Hello& hello : {larger, first, newer, elsewhere})
            told += RawLine(address).enter(hello);
        return told;
    });
    CHECK(ends[0].said == "b");
    CHECK(ends[1].said == "b");
    CHECK_THAT(ends[2].said,
               ContainsSubstring("has 2 processes, but this process is rank 1 of 3") &&
                   ContainsSubstring("has its rank 0 already") &&
                   ContainsSubstring("has another version of Lockstep") &&
                   ContainsSubstring("is another run"));
}

TEST_CASE("A second process with the same rank is rejected with a message") {
    const std::string address = fresh_address();
    const auto ends = run_processes(4, [&](int number) {
        if (number == 2) sleep_seconds(0.5);  // the meeting stays open
        if (number == 3) sleep_seconds(0.2);
        return join(number == 3 ? 1 : number, 3, address)->all_gather("").front();
    });
    for (const int number : {0, 1, 2})
        CHECK(ends[static_cast<size_t>(number)].status == 0);
    CHECK_THAT(ends[3].said, StartsWith("rank 1 was turned away: the run that meets at"));
    CHECK(ends[3].status == 99);
}

TEST_CASE("A second run cannot use another program's address") {
    for (const std::string& address : {fresh_address(), fresh_tcp_address("127.0.0.1")}) {
        const Descriptor taken = listen_at(parse_address(address, ""));
        CHECK_THROWS_WITH(
            join(0, 2, address, 0.2),
            StartsWith("rank 0 cannot listen for the other processes at " + address) &&
                ContainsSubstring("set LOCKSTEP_RENDEZVOUS"));
        // The program that listens there sends an answer that makes no sense.
        CHECK_THROWS_WITH(join(1, 2, address, 0.2),
                          ContainsSubstring("another program answers there"));
    }
}

TEST_CASE("An impossible address is refused") {
    CHECK_THROWS_AS(join(0, 2, "192.0.2.77:29500", 0.2),
                    UsageError);  // not an address of this machine
    CHECK_THROWS_AS(join(1, 2, "no such machine:29500", 0.2), UsageError);
    CHECK_THROWS_AS(join(1, 2, "nowhere", 0.2), UsageError);
    CHECK_THROWS_WITH(join(0, 2, "0.0.0.0:29500", 0.2),
                      ContainsSubstring("means every address of its machine"));
    CHECK_THROWS_WITH(join(0, 2, "[::]:29500", 0.2),
                      ContainsSubstring("means every address of its machine"));
}

TEST_CASE("Rank 0 listens only at the address that was named") {
    // A name in capitals is looked up like the name of any machine.
    for (const char* host : {"127.0.0.1", "LOCALHOST"}) {
        const Address address = parse_address(fresh_tcp_address(host), "");
        const Descriptor listener = listen_at(address);
        const auto at_once = Clock::now();
        CHECK(connect_to(address, at_once).open());
        for (const char* other : {"127.0.0.2", "::1"}) {
            Address elsewhere = address;
            elsewhere.host = other;
            CHECK_FALSE(connect_to(elsewhere, at_once).open());
        }
    }
}

TEST_CASE("A name that hides rank 0 from other machines is refused") {
    Placement spread = place(0, 2, fresh_tcp_address("LOCALHOST"));
    CHECK(listen_at(meeting_place(spread)).open());
    spread.local_size = 1;
    CHECK_THROWS_WITH(
        Control::join(spread, {0.2}),
        StartsWith("on rank 0's machine, LOCALHOST is an address that other machines "
                   "cannot reach") &&
            ContainsSubstring("LOCKSTEP_RENDEZVOUS"));
}
