#include "lessons/grader/confine/claimed_user.hpp"

#include <cstddef>
#include <cstring>
#include <fstream>
#include <pwd.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep::lessons {

namespace {

/// User numbers that systems give only to services, and only for a while.
constexpr unsigned kFirst = 61'184;
constexpr unsigned kLast = 65'519;

/// Returns whether this container, or this system, has the user number.
bool exists(unsigned user) {
    std::ifstream map("/proc/self/uid_map");
    unsigned long inside = 0, outside = 0, count = 0;
    while (map >> inside >> outside >> count)
        if (user >= inside && user - inside < count) return true;
    return false;
}

/// Claims a name that only one process on the machine can have at a time, until that
/// process ends. Returns a closed descriptor if another process has the name.
os::Descriptor claim(unsigned user) {
    os::Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    // The first byte is 0, so the name is not a file's.
    const std::string name = fmt::format("lockstep grading as user {}", user);
    std::memcpy(&address.sun_path[1], name.data(), name.size());
    const auto length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::bind(socket.number(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
        socket.close();
    return socket;
}

}  // namespace

ClaimedUser::ClaimedUser() : number_(::geteuid()) {
    if (!works()) return;
    constexpr unsigned kCount = kLast - kFirst + 1;
    for (unsigned i = 0; i < kCount; ++i) {
        const unsigned user = kFirst + (static_cast<unsigned>(::getpid()) + i) % kCount;
        if (::getpwuid(user) != nullptr) continue;  // belongs to a service
        claim_ = claim(user);
        if (!claim_.open()) continue;
        number_ = user;
        return;
    }
    throw MissingError(fmt::format("none of the users {} to {} is free to run a program",
                                   kFirst, kLast));
}

bool ClaimedUser::works() {
    static const bool works = ::geteuid() == 0 && exists(kFirst) && exists(kLast);
    return works;
}

}  // namespace lockstep::lessons
