#include <array>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>

#include "src/os/deadline.hpp"
#include "src/os/descriptor.hpp"
#include "tests/catch.hpp"

using namespace lockstep::os;

namespace {

bool is_open(int descriptor) {
    return ::fcntl(descriptor, F_GETFD) >= 0;
}

bool readable(const Descriptor& descriptor) {
    pollfd watched{descriptor.number(), POLLIN, 0};
    return ::poll(&watched, 1, 0) == 1;
}

}  // namespace

TEST_CASE("A descriptor is closed with its owner, and only then", "[os]") {
    Pipe pipe = make_pipe();
    const int reading = pipe.reading.number();
    {
        Descriptor owner = std::move(pipe.reading);
        CHECK_FALSE(pipe.reading.open());
        CHECK(owner.number() == reading);
        pipe.reading = std::move(owner);
    }
    CHECK(is_open(reading));
    pipe.reading.close();
    CHECK_FALSE(is_open(reading));
}

TEST_CASE("Other programs do not inherit pipes and pairs of sockets", "[os]") {
    const Pipe pipe = make_pipe();
    const SocketPair pair = make_socket_pair(SOCK_SEQPACKET);
    for (const Descriptor* one : {&pipe.reading, &pipe.writing, &pair.ours, &pair.theirs})
        CHECK(::fcntl(one->number(), F_GETFD) == FD_CLOEXEC);
    CHECK(write_some(pair.ours.number(), "ping", 4) == 4);
    std::array<char, 16> got{};
    CHECK(read_some(pair.theirs.number(), got.data(), got.size()) == 4);
}

TEST_CASE("All bytes are written, even if the reader is slow", "[os]") {
    Pipe pipe = make_pipe();
    ::fcntl(pipe.writing.number(), F_SETFL, O_NONBLOCK);
    const std::string text(1 << 20, 'x');
    std::string got;
    std::thread reader([&] {
        std::array<char, 4096> some;
        for (ssize_t count = 1; count > 0;) {
            count = read_some(pipe.reading.number(), some.data(), some.size());
            got.append(some.data(), static_cast<std::size_t>(count));
        }
    });
    write_all(pipe.writing.number(), text, "the pipe");
    pipe.writing.close();
    reader.join();
    CHECK(got == text);
}

TEST_CASE("An error in writing a text names the target", "[os][errors]") {
    CHECK_THROWS_WITH(write_all(-1, "text", "nowhere"),
                      Catch::Matchers::StartsWith("cannot write to nowhere"));
}

TEST_CASE("A waker wakes until it is calmed", "[os]") {
    const Descriptor waker = make_waker();
    CHECK_FALSE(readable(waker));
    wake(waker);
    wake(waker);
    CHECK(readable(waker));
    calm(waker);
    CHECK_FALSE(readable(waker));
}

TEST_CASE("poll waits at least until a time, or for ever", "[os]") {
    const auto now = Clock::now();
    CHECK(milliseconds_until(now) == 0);
    CHECK(milliseconds_until(now - std::chrono::hours(1)) == 0);
    const int soon = milliseconds_until(after(now, 100));
    CHECK(soon > 90'000);
    CHECK(soon <= 100'000);
    CHECK(milliseconds_until(now + std::chrono::hours(24 * 365)) == 1 << 30);
    CHECK(milliseconds_until(kNever) == -1);
}
