#include "lessons/grader/confine/pace.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <sys/mman.h>

#include "lessons/grader/confine/activity.hpp"

namespace lockstep::lessons {

namespace {

/// Returns the processor time of a chain of multiplications, each of which needs the one
/// before.
double seconds_of_computing() {
    constexpr int kSteps = 5'000'000;
    const double begun = processor_seconds();
    volatile double start = 1;
    double value = start;
    for (int i = 0; i < kSteps; ++i)
        value = value * 0.999 + 0.001;
    start = value;
    return processor_seconds() - begun;
}

/// Returns the processor time that the first touch of a byte takes, with its page.
double seconds_per_new_byte() {
    constexpr std::size_t kBytes = std::size_t{16} << 20;
    constexpr std::size_t kPage = 4096;
    void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    ::madvise(memory, kBytes, MADV_NOHUGEPAGE);
    const double begun = processor_seconds();
    auto* const bytes = static_cast<volatile char*>(memory);
    for (std::size_t at = 0; at < kBytes; at += kPage)
        bytes[at] = 1;
    const double seconds = processor_seconds() - begun;
    ::munmap(memory, kBytes);
    return seconds / static_cast<double>(kBytes);
}

}  // namespace

double Pace::limit(double seconds, std::int64_t bytes) const {
    const double touching = 2 * seconds_per_byte * static_cast<double>(bytes);
    return std::max(std::round(seconds * computing + touching), seconds);
}

const Pace& pace() {
    static const Pace measured = [] {
        constexpr double kUsual = 0.02;  // on two processors of 2.1 to 3 GHz
        return Pace{std::max(seconds_of_computing() / kUsual, 1.0),
                    seconds_per_new_byte()};
    }();
    return measured;
}

}  // namespace lockstep::lessons
