#include "gpu/launcher/pace.hpp"
#include "tests/catch.hpp"

using namespace lockstep::gpu;
using namespace std::chrono_literals;

namespace {

constexpr auto kTimeout = 4s;
constexpr auto kPatience = 500ms;  // how often a watch with this timeout looks

/// Returns which of three processes stalls the run one timeout after `news`.
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

TEST_CASE("A run stalls when all watched processes stall") {
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

TEST_CASE("A stuck process stops a running run, which names the first stalled one") {
    CHECK(standstill({{0, Pace::moving}, {1, Pace::still}, {1, Pace::stuck}}) == 1);
    CHECK(
        standstill(
            {{0, Pace::moving}, {2, Pace::still}, {1, Pace::still}, {1, Pace::stuck}}) ==
        2);
    CHECK_FALSE(standstill({{0, Pace::moving}, {1, Pace::stuck}, {1, Pace::moving}}));
}

TEST_CASE("A late report of progress restarts the timeout") {
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

TEST_CASE("A process that waited for a process that has left gets the whole timeout") {
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
