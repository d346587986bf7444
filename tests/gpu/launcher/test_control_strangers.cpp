#include <algorithm>
#include <limits>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/launcher/entrance.hpp"
#include "src/os/descriptor.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/launcher/raw_line.hpp"
#include "tests/gpu/processes.hpp"

using namespace lockstep;
using namespace lockstep::gpu;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

constexpr const char* kWrongSecret = "a secret that no process of the run knows";

/// Lets one process of a test wait for another one.
class Gate {
  public:
    /// Lets one waiting process pass, now or later.
    void open(size_t times = 1) const {
        os::write_all(pipe_.writing.number(), std::string(times, 'o'), "a gate");
    }
    void wait() const {
        char letter = 0;
        os::read_some(pipe_.reading.number(), &letter, 1);
    }

    /// Opens the gate for good at the end of a program, also after an exception.
    class Opening {
      public:
        explicit Opening(const Gate& gate) : gate_(gate) {}
        ~Opening() { gate_.open(100); }
        Opening(const Opening&) = delete;
        Opening& operator=(const Opening&) = delete;

      private:
        const Gate& gate_;
    };

  private:
    os::Pipe pipe_ = os::make_pipe();
};

/// Runs rank 0, a stranger, and, once the stranger has opened the gate or ended, rank 1.
std::vector<ProcessEnd> run_with_stranger(
    const std::string& address, const std::function<std::string(const Gate&)>& stranger) {
    const Gate gate;
    return run_processes(3, [&](int number) {
        if (number == 2) {
            const Gate::Opening opening(gate);
            return stranger(gate);
        }
        if (number == 1) gate.wait();
        return join(number, 2, address, 100)->all_gather(number == 0 ? "a" : "b").at(1);
    });
}

/// Runs rank 0, which takes part in exchanges until it is stopped, and a process that
/// knows the secret and does as it likes. The gate opens after each exchange. Returns how
/// rank 0 ended.
ProcessEnd run_with_liar(const std::function<void(RawLine&, const Gate&)>& lie) {
    const Gate gate;
    const auto ends = run_processes(2, [&, address = fresh_address()](int number) {
        if (number == 0) {
            const Gate::Opening opening(gate);
            const auto control = join(0, 2, address);
            for (;; gate.open())
                control->all_gather(std::string(1 << 20, 'x'));
        }
        RawLine line(address);
        line.enter(hello_of(place(1, 2, address)));
        lie(line, gate);
        line.skip_to(MessageKind::stop);
        return std::string();
    });
    return ends[0];
}

void allow_descriptors(rlim_t count) {
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min(std::max(limit.rlim_cur, count), limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<Connection*> lines_of(Entrance& entrance) {
    std::vector<Connection*> lines;
    entrance.add_connections(lines);
    return lines;
}

void wait_for(int descriptor) {
    pollfd wait = {descriptor, POLLIN, 0};
    poll(&wait, 1, -1);
}

Descriptor connect_as_stranger(const std::string& address) {
    return connect_to(parse_address(address, "the test's address"),
                      Clock::now() + std::chrono::seconds(100));
}

constexpr int kWaysToPretend = 4;

/// Answers as rank 0, but without knowing the secret. Returns "no " if the other side
/// then leaves.
std::string pretend(RawLine line, int way) {
    const auto hello = line.hear();
    const Nonce challenge = fresh_nonce();
    line.send({MessageKind::challenge, pack(challenge)});
    const auto proof = line.hear();
    if (!hello || !proof) return "it said nothing ";
    Verdict verdict;
    if (way == 0) verdict.proof = unpack<Proof>(*proof->body);  // its own
    if (way == 1)
        verdict.proof =
            proof_of_root(kWrongSecret, unpack<Hello>(*hello->body), challenge, "");
    if (way == 2) verdict.why = "give up";
    if (way == 3)
        line.send(MessageKind::welcome);
    else
        line.send({MessageKind::verdict, pack(verdict)});
    return line.hear() ? "it stays " : "no ";
}

/// Runs rank 1, which takes part in one exchange, and a rank 0 that knows the secret and
/// does as it likes. Returns how rank 1 ended.
ProcessEnd run_with_lying_root(const std::function<void(RawLine&)>& lie) {
    const auto ends = run_processes(2, [&, address = fresh_address()](int number) {
        if (number == 1) return join(1, 2, address)->all_gather("b").at(1);
        const Descriptor listener = listen_at(parse_address(address, ""));
        wait_for(listener.number());
        RawLine line(accept_from(listener), Peer::stranger);
        const auto hello = unpack<Hello>(*line.hear()->body);
        const Nonce challenge = fresh_nonce();
        line.send({MessageKind::challenge, pack(challenge)});
        line.hear();
        const Proof proof = proof_of_root(kTestSecret, hello, challenge, "");
        line.send({MessageKind::verdict, pack(Verdict{"", proof})});
        line.trust(Peer::member);
        line.send(MessageKind::welcome);
        line.skip_to(MessageKind::all_gather);
        lie(line);
        line.skip_to(MessageKind::goodbye);
        return std::string();
    });
    return ends[1];
}

}  // namespace

TEST_CASE("A stranger that comes first as rank 1 is turned away, and rank 1 joins") {
    const std::string address = fresh_tcp_address("127.0.0.1");
    const auto ends = run_with_stranger(address, [&](const Gate&) {
        RawLine line(address);
        const Hello hello = hello_of(place(1, 2, address));
        const Nonce challenge = line.greet(hello);
        const Proof wrong = proof_of_member(kWrongSecret, hello, challenge);
        line.send({MessageKind::proof, pack(wrong)});
        line.send({MessageKind::all_gather, "false", 1});
        return std::string(line.hear() ? "heard" : "turned away");
    });
    CHECK(ends[0].said == "b");
    CHECK(ends[1].said == "b");
    CHECK(ends[2].said == "turned away");
}

TEST_CASE("A stranger that skips a step is turned away") {
    const std::string address = fresh_tcp_address("127.0.0.1");
    const Message gather(MessageKind::all_gather, "false", 1);
    const auto ends = run_with_stranger(address, [&](const Gate&) {
        const Hello hello = hello_of(place(1, 2, address));
        const Message proof(MessageKind::proof,
                            pack(proof_of_member(kTestSecret, hello, Nonce{})));
        std::string heard;
        for (const Message& first : {proof, gather}) {
            RawLine line(address);
            line.send(first);
            if (line.hear()) heard += "an answer to its first message ";
        }
        for (const Message& second : {Message(MessageKind::hello, pack(hello)), gather}) {
            RawLine line(address);
            line.greet(hello);
            line.send(second);
            if (line.hear()) heard += "an answer to its second message ";
        }
        return heard;
    });
    CHECK(ends[1].said == "b");
    CHECK(ends[2].said.empty());
}

TEST_CASE("A proof is of no use in another connection, or for another rank") {
    const std::string address = fresh_tcp_address("127.0.0.1");
    const auto ends = run_with_stranger(address, [&](const Gate&) {
        const Hello hello = hello_of(place(1, 2, address));
        RawLine first(address);
        const Proof overheard = proof_of_member(kTestSecret, hello, first.greet(hello));
        RawLine second(address);
        second.greet(hello);
        second.send({MessageKind::proof, pack(overheard)});
        std::string heard = second.hear() ? "replayed" : "";

        Hello other = hello;
        other.rank = 0;
        RawLine third(address);
        const Nonce challenge = third.greet(hello);
        third.send(
            {MessageKind::proof, pack(proof_of_member(kTestSecret, other, challenge))});
        return heard + (third.hear() ? "of another rank" : "");
    });
    CHECK(ends[1].said == "b");
    CHECK(ends[2].said.empty());
}

TEST_CASE("Rank 0 says how many connections did not know the secret") {
    const std::string address = fresh_address();
    const auto ends = run_processes(2, [&](int number) {
        if (number == 0) return join(0, 2, address, 1).get() ? "" : std::string();
        for (int i = 0; i < 2; ++i) {
            RawLine line(address);
            const Hello hello = hello_of(place(1, 2, address));
            const Nonce challenge = line.greet(hello);
            line.send({MessageKind::proof,
                       pack(proof_of_member(kWrongSecret, hello, challenge))});
            line.hear();
        }
        return std::string();
    });
    CHECK_THAT(ends[0].said,
               ContainsSubstring("start all processes, with the same address and the "
                                 "same secret (2 connections did not know the secret)"));
}

TEST_CASE("A process with another secret says so") {
    const std::string address = fresh_address();
    const auto ends = run_processes(2, [&](int rank) {
        Placement own = place(rank, 2, address);
        if (rank == 1) own.rendezvous.secret = kWrongSecret;
        return Control::join(own, {rank == 0 ? 1.0 : 0.5})->all_gather("").front();
    });
    CHECK_THAT(ends[0].said, ContainsSubstring("did not know the secret"));
    CHECK_THAT(ends[1].said,
               ContainsSubstring("does not know this process's secret; give all "
                                 "processes the same"));
}

TEST_CASE("A member refuses an impostor of rank 0, and finds the true rank 0 later") {
    const std::string address = fresh_tcp_address("127.0.0.1");
    const Gate impostor_listens;
    const Gate impostor_gone;
    const auto ends = run_processes(3, [&](int number) {
        if (number == 2) {
            const Gate::Opening opening(impostor_gone);
            const Descriptor listener = listen_at(parse_address(address, ""));
            impostor_listens.open();
            std::string refusals;
            for (int way = 0; way < kWaysToPretend; ++way) {
                wait_for(listener.number());
                refusals += pretend(RawLine(accept_from(listener), Peer::stranger), way);
            }
            return refusals;
        }
        (number == 0 ? impostor_gone : impostor_listens).wait();
        return join(number, 2, address, 100)->all_gather(number == 0 ? "a" : "b").at(0);
    });
    CHECK(ends[2].said == "no no no no ");
    CHECK(ends[0].said == "a");
    CHECK(ends[1].said == "a");
}

TEST_CASE("A run starts behind 1,000 connections that say nothing") {
    const std::string address = fresh_tcp_address("127.0.0.1");
    const auto ends = run_with_stranger(address, [&](const Gate& gate) {
        allow_descriptors(2048);
        std::vector<Descriptor> strangers(1000);
        for (Descriptor& stranger : strangers)
            stranger = connect_as_stranger(address);
        gate.open();
        std::string told;
        for (Descriptor& stranger : strangers)
            told += RawLine(std::move(stranger), Peer::host).hear() ? "an answer" : "";
        return told;
    });
    CHECK(ends[0].said == "b");
    CHECK(ends[1].said == "b");
    CHECK(ends[2].status == 0);
    CHECK(ends[2].said.empty());
}

TEST_CASE("Strangers are few at a time, and none stays") {
    using namespace std::chrono_literals;
    constexpr size_t kMost = 256;
    allow_descriptors(2048);
    const std::string address = fresh_tcp_address("127.0.0.1");
    Entrance entrance(place(0, 2, address));
    const auto start = Clock::now();
    std::vector<Descriptor> strangers(300);
    for (Descriptor& stranger : strangers) {
        stranger = connect_as_stranger(address);
        CHECK(entrance.serve(start).empty());
    }
    CHECK(lines_of(entrance).size() == kMost);
    CHECK(entrance.serve(start + 400ms).empty());
    CHECK(entrance.turned_away() == 0);

    // Those who wait behind a crowd take the places of the oldest.
    CHECK(entrance.serve(start + 600ms).empty());
    CHECK(lines_of(entrance).size() == kMost);
    CHECK(entrance.turned_away() == 300 - kMost);

    // The others may be silent for five seconds.
    CHECK(entrance.serve(start + 4900ms).empty());
    CHECK(lines_of(entrance).size() == kMost);
    CHECK(entrance.serve(start + 5700ms).empty());
    CHECK(lines_of(entrance).empty());
    CHECK(entrance.turned_away() == 300);
}

TEST_CASE("What a stranger sends is read only up to the end of a message") {
    const std::string address = fresh_tcp_address("127.0.0.1");
    Entrance entrance(place(0, 2, address));
    const Message hello(MessageKind::hello, pack(hello_of(place(1, 2, address))));
    const std::string once = header_bytes(hello) + *hello.body;
    std::string flood;
    for (int i = 0; i < 100; ++i)
        flood += once;
    const Descriptor stranger = connect_as_stranger(address);
    os::write_all(stranger.number(), flood, "the test's connection");
    wait_for(entrance.listener());
    CHECK(entrance.serve(Clock::now()).empty());
    Connection* const line = lines_of(entrance).at(0);
    const auto unread = [&] {
        int bytes = 0;
        ioctl(line->number(), FIONREAD, &bytes);
        return static_cast<size_t>(bytes);
    };
    while (unread() < flood.size())
        wait_for(line->number());
    line->transfer(POLLIN);
    CHECK(unread() == flood.size() - once.size());
    CHECK(entrance.serve(Clock::now()).empty());
    CHECK(lines_of(entrance).size() == 1);
    line->transfer(POLLIN);
    CHECK(unread() == flood.size() - 2 * once.size());
    CHECK(entrance.serve(Clock::now()).empty());
    CHECK(lines_of(entrance).empty());
}

TEST_CASE("A peer's messages have the kinds and the lengths that are expected of it") {
    const auto expected = [](Peer peer, MessageKind kind, uint64_t bytes) {
        try {
            require_expected({kind, 0, bytes}, peer, 3);
            return true;
        } catch (const ProtocolError&) {
            return false;
        }
    };
    const std::tuple<Peer, MessageKind, uint64_t> longest[] = {
        {Peer::stranger, MessageKind::hello, 64},
        {Peer::stranger, MessageKind::proof, 32},
        {Peer::host, MessageKind::challenge, 32},
        {Peer::host, MessageKind::verdict, 4096},
        {Peer::member, MessageKind::all_gather, kLongestPart},
        {Peer::member, MessageKind::broadcast, 0},
        {Peer::member, MessageKind::pace, 8},
        {Peer::member, MessageKind::beat, 0},
        {Peer::root, MessageKind::result, 3 * (kLongestPart + 16)},
        {Peer::root, MessageKind::welcome, 0},
    };
    for (const auto& [peer, kind, bytes] : longest) {
        CHECK(expected(peer, kind, bytes));
        CHECK_FALSE(expected(peer, kind, bytes + 1));
        for (const Peer other : {Peer::stranger, Peer::host, Peer::member, Peer::root})
            if (other != peer && kind != MessageKind::beat)
                CHECK_FALSE(expected(other, kind, 0));
    }
    CHECK_FALSE(expected(Peer::member, MessageKind::all_gather,
                         std::numeric_limits<uint64_t>::max()));
}

TEST_CASE("A process that sends what it may not is cut off") {
    const auto said = [](const std::function<void(RawLine&, const Gate&)>& lie) {
        const ProcessEnd end = run_with_liar(lie);
        CHECK(end.status == 1);
        CHECK_THAT(
            end.said,
            StartsWith("rank 1, status 1: lockstep: rank 1 was cut off: it sent "));
        return end.said;
    };
    const std::pair<Message, const char*> lies[] = {
        {{MessageKind::broadcast, "bytes", 1},
         "a message of 5 bytes, where at most 0 are expected"},
        {{MessageKind::all_gather, "", 2}, "a message to another exchange"},
        {{MessageKind::result}, "a message that only others send"},
        {{MessageKind::pace, "more"}, "a message is too short"},
    };
    for (const auto& [message, breach] : lies)
        CHECK_THAT(said([lie = message](RawLine& line, const Gate&) { line.send(lie); }),
                   ContainsSubstring(breach));
    CHECK_THAT(said([](RawLine& line, const Gate& gate) {
                   for (uint64_t sequence = 1; sequence < 20; ++sequence) {
                       line.send({MessageKind::all_gather, "", sequence});
                       gate.wait();
                   }
               }),
               ContainsSubstring("before it has read those that were sent to it"));
}

TEST_CASE("A failure that a process reports is its own, and a failure") {
    const ProcessEnd end = run_with_liar([](RawLine& line, const Gate&) {
        const Failure lie = {0, 0, "all is well\x1b[2J\nit is"};
        line.send({MessageKind::failure, pack(lie)});
    });
    CHECK(end.status == 1);
    CHECK(end.said == "rank 1, status 1: all is well\\x1b[2J\nit is\n");
}

TEST_CASE("A process does not believe a rank 0 that says what it may not") {
    using Texts = std::vector<std::string>;
    const auto said = [](const Message& lie) {
        const ProcessEnd end =
            run_with_lying_root([&](RawLine& line) { line.send(lie); });
        CHECK(end.status != 0);
        return end.said;
    };
    const std::string cut_off =
        "rank 0, status 1: lockstep: rank 0 was cut off: it sent ";
    CHECK(said({MessageKind::result, pack(Texts{"a", "b"}), 2}) ==
          cut_off + "the result of another exchange\n");
    CHECK(said({MessageKind::all_gather, "", 1}) ==
          cut_off + "a message that only others send\n");
    CHECK(said({MessageKind::result, pack(Texts{"a"}), 1}) ==
          "rank 0 sent the bytes of another number of processes");
    CHECK(said({MessageKind::stop, pack(Failure{1, 0, "all is well"})}) ==
          "rank 1, status 1: all is well\n");
}
