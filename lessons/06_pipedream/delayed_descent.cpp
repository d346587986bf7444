#include "lessons/06_pipedream/delayed_descent.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

namespace lockstep::lessons {

double largest_step(int delay) {
    return 2 * std::sin(std::numbers::pi / (2.0 * (2 * delay + 1)));
}

namespace {

/// Returns whether w goes to 0: whether its swings become small, and not large.
bool shrinks(double a, int delay) {
    constexpr std::size_t kSteps = 500'000;
    constexpr double kLarge = 1e3, kSmall = 1e-3;
    // w of the last delay + 1 times, in a ring.
    std::vector<double> last(static_cast<std::size_t>(delay) + 1, 1.0);
    double now = 1, swing = 0;
    for (std::size_t t = 0; t < kSteps; ++t) {
        double& oldest = last[t % last.size()];
        now -= a * oldest;
        oldest = now;
        swing = std::max(swing, std::abs(now));
        if ((t + 1) % (8 * last.size()) != 0) continue;
        if (swing > kLarge) return false;
        if (swing < kSmall) return true;
        swing = 0;
    }
    return false;
}

}  // namespace

double largest_step_tried(int delay) {
    double good = 0, bad = 2.5;
    for (int halving = 0; halving < 30; ++halving) {
        const double a = (good + bad) / 2;
        (shrinks(a, delay) ? good : bad) = a;
    }
    return good;
}

}  // namespace lockstep::lessons
