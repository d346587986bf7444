#include "gpu/launcher/descriptor.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>

namespace lockstep::gpu {

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    if (this != &other) {
        close();
        number_ = std::exchange(other.number_, -1);
    }
    return *this;
}

void Descriptor::close() noexcept {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
}

Descriptor make_waker() {
    Descriptor waker(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!waker.open())
        throw std::system_error(errno, std::generic_category(), "cannot make an eventfd");
    return waker;
}

void wake(const Descriptor& waker) noexcept {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = write(waker.number(), &one, sizeof one);
}

void calm(const Descriptor& waker) noexcept {
    uint64_t count = 0;
    [[maybe_unused]] const auto got = read(waker.number(), &count, sizeof count);
}

Clock::time_point after(Clock::time_point start, double seconds) {
    return start + std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double>(seconds));
}

int milliseconds_until(Clock::time_point time) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now());
    return static_cast<int>(std::clamp<long long>(left.count(), 0, 60'000));
}

}  // namespace lockstep::gpu
