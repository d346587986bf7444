#include "gpu/launcher/stall_watch.hpp"
#include "tests/catch.hpp"

using namespace lockstep::gpu;
using namespace std::chrono_literals;

namespace {

/// Looks every second for so many seconds; how often it found a stall.
int stalls(StallWatch& watch, Clock::time_point& now, int seconds) {
    int found = 0;
    for (int second = 0; second < seconds; ++second)
        found += watch.stalled(now += 1s);
    return found;
}

}  // namespace

TEST_CASE("A stall is reported once, after its timeout and not before") {
    StallWatch watch(10);
    auto now = Clock::now();
    CHECK(stalls(watch, now, 100) == 0);  // not watched
    watch.begin();
    CHECK(stalls(watch, now, 10) == 0);
    CHECK(stalls(watch, now, 1) == 1);
    CHECK(stalls(watch, now, 100) == 0);
    watch.progress();
    CHECK(stalls(watch, now, 10) == 0);
    CHECK(stalls(watch, now, 10) == 1);
    watch.end();
    CHECK(stalls(watch, now, 100) == 0);
}

TEST_CASE("Progress and waiting for other processes begin the time anew") {
    StallWatch watch(10);
    auto now = Clock::now();
    watch.begin();
    CHECK(stalls(watch, now, 9) == 0);
    watch.progress();
    CHECK(stalls(watch, now, 9) == 0);
    {
        const StallWatch::Pause pause(watch);
        CHECK(stalls(watch, now, 100) == 0);
    }
    CHECK(stalls(watch, now, 10) == 0);
    CHECK(stalls(watch, now, 1) == 1);
}

TEST_CASE("Time in which nobody looked is not counted") {
    StallWatch watch(10);
    auto now = Clock::now();
    watch.begin();
    CHECK(stalls(watch, now, 2) == 0);
    now += 1h;
    CHECK(stalls(watch, now, 5) == 0);
}
