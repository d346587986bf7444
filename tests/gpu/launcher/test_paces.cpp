#include "gpu/launcher/pace.hpp"
#include "tests/catch.hpp"

using namespace lockstep::gpu;
using namespace std::chrono_literals;

namespace {

constexpr auto kTimeout = 4s;
constexpr auto kPatience = 500ms;  // the interval at which such a watch looks

/// Of three processes, after each of these in turn; told long ago.
std::optional<int> standstill(const std::vector<std::pair<int, Pace>>& news) {
    const StallWatch watch(4);
    Paces paces(3, watch);
    const auto now = Clock::now();
    for (const auto& [rank, pace] : news)
        paces.note(rank, pace, now);
    CHECK_FALSE(paces.standstill(now));
    return paces.standstill(now + kTimeout);
}

}  // namespace

TEST_CASE("A run stands still once all that are watched do") {
    CHECK_FALSE(standstill({}));
    CHECK_FALSE(standstill({{0, Pace::moving}}));
    CHECK(standstill({{2, Pace::still}}) == 2);
    CHECK_FALSE(standstill({{2, Pace::still}, {0, Pace::moving}}));
    CHECK(standstill({{2, Pace::still}, {0, Pace::moving}, {0, Pace::unwatched}}) == 2);
    CHECK(standstill({{0, Pace::moving}, {2, Pace::still}, {0, Pace::still}}) == 2);
    CHECK(
        standstill(
            {{2, Pace::still}, {0, Pace::still}, {2, Pace::moving}, {2, Pace::still}}) ==
        0);
    CHECK_FALSE(standstill({{2, Pace::still}, {2, Pace::unwatched}}));
}

TEST_CASE("One that is stuck stops a run that goes on, by the name of the first") {
    CHECK(standstill({{0, Pace::moving}, {1, Pace::still}, {1, Pace::stuck}}) == 1);
    CHECK(
        standstill(
            {{0, Pace::moving}, {2, Pace::still}, {1, Pace::still}, {1, Pace::stuck}}) ==
        2);
    CHECK_FALSE(standstill({{0, Pace::moving}, {1, Pace::stuck}, {1, Pace::moving}}));
}

TEST_CASE("Word that a process moves may be late: the patience begins anew after it") {
    const StallWatch watch(4);
    Paces paces(2, watch);
    const auto now = Clock::now();
    paces.note(0, Pace::still, now);
    CHECK(paces.due() == now + kPatience);
    paces.note(0, Pace::moving, now + 400ms);
    CHECK(paces.due() == kNever);
    paces.note(0, Pace::still, now + 450ms);
    CHECK_FALSE(paces.standstill(now + kPatience));
    CHECK(paces.standstill(now + 950ms) == 0);
}

TEST_CASE("Who waited for one that has left has the timeout to go on") {
    const StallWatch watch(4);
    Paces paces(2, watch);
    const auto now = Clock::now();
    paces.note(1, Pace::moving, now);
    paces.note(0, Pace::still, now);
    paces.note(1, Pace::unwatched, now);
    CHECK(paces.due() == now + kTimeout);
    paces.note(0, Pace::stuck, now + 1s);
    CHECK(paces.due() == now + 1s + kPatience);
}
