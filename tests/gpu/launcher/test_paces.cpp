#include "gpu/launcher/paces.hpp"
#include "tests/catch.hpp"

using namespace lockstep::gpu;
using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 1s;

/// Of three processes, after each of these in turn; told long ago.
std::optional<int> standstill(const std::vector<std::pair<int, Pace>>& news) {
    Paces paces(3, kPatience);
    const auto now = Clock::now();
    for (const auto& [rank, pace] : news)
        paces.note(rank, pace, now);
    CHECK_FALSE(paces.standstill(now));
    return paces.standstill(now + kPatience);
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
    Paces paces(2, kPatience);
    const auto now = Clock::now();
    paces.note(0, Pace::still, now);
    CHECK(paces.due() == now + kPatience);
    paces.note(0, Pace::moving, now + 900ms);
    CHECK(paces.due() == kNever);
    paces.note(0, Pace::still, now + 950ms);
    CHECK_FALSE(paces.standstill(now + kPatience));
    CHECK(paces.standstill(now + 1950ms) == 0);
}
