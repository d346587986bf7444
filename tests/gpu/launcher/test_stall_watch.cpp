#include "gpu/launcher/pace.hpp"
#include "tests/catch.hpp"

using namespace lockstep::gpu;
using namespace std::chrono_literals;

namespace {

/// Calls look() once a second, `seconds` times. Returns a letter for each pace.
std::string paces(StallWatch& watch, Clock::time_point& now, int seconds) {
    std::string found;
    for (int second = 0; second < seconds; ++second)
        if (const auto pace = watch.look(now += 1s))
            found += "ums!"[static_cast<size_t>(*pace)];
    return found;
}

}  // namespace

TEST_CASE("A stall is reported once, after its timeout; its end is also reported once") {
    StallWatch watch(10);
    auto now = Clock::now();
    CHECK(paces(watch, now, 200) == "");
    watch.begin();
    CHECK(paces(watch, now, 10) == "m");
    CHECK(paces(watch, now, 1) == "s");
    CHECK(paces(watch, now, 80) == "");
    watch.progress();
    CHECK(paces(watch, now, 10) == "m");
    CHECK(paces(watch, now, 10) == "s");
    watch.end();
    CHECK(paces(watch, now, 200) == "u");
}

TEST_CASE("A process that stalls for ten times the timeout is stuck") {
    StallWatch watch(10);
    auto now = Clock::now();
    watch.begin();
    CHECK(paces(watch, now, 100) == "ms");
    CHECK(paces(watch, now, 1) == "!");
    watch.progress();
    CHECK(paces(watch, now, 1) == "m");
}

TEST_CASE("Progress and waiting for other processes restart the timeout") {
    StallWatch watch(10);
    auto now = Clock::now();
    watch.begin();
    CHECK(paces(watch, now, 9) == "m");
    watch.progress();
    CHECK(paces(watch, now, 9) == "");
    {
        const StallWatch::Pause pause(watch);
        CHECK(paces(watch, now, 200) == "u");
    }
    CHECK(paces(watch, now, 10) == "m");
    CHECK(paces(watch, now, 1) == "s");
}

TEST_CASE("Time without a check is not counted") {
    StallWatch watch(10);
    auto now = Clock::now();
    watch.begin();
    CHECK(paces(watch, now, 2) == "m");
    now += 1h;
    CHECK(paces(watch, now, 5) == "");
}
