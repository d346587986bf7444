// Schedules that can run, and durations, drawn at random.
#pragma once

#include <random>
#include <vector>

#include "src/pipeline/timer.hpp"

namespace lockstep::test {

/// The same numbers on every system.
class Random {
  public:
    explicit Random(unsigned seed) : engine_(seed) {}
    int below(int count) {
        return static_cast<int>(engine_() % static_cast<unsigned>(count));
    }
    int between(int least, int most) { return least + below(most - least + 1); }
    bool one_in(int count) { return below(count) == 0; }

  private:
    std::mt19937 engine_;
};

struct RandomScheduleOptions {
    /// Optimizer steps in between, and versions of weights.
    bool weight_versions = false;
    /// Sends and receives, anywhere between making and use, in one order that all
    /// stages agree on.
    bool messages = false;
    /// Messages side by side in groups, of those that all stages agree on; a forward and
    /// a backward side by side in pairs.
    bool together = false;
    /// A queue for each direction, if no messages are in groups.
    bool by_direction = false;
};

/// Up to 6 stages, 8 micro-batches and 3 chunks; chunks looped, in a V, shuffled, or the
/// same parts on two stages; an order of work in which nothing comes before what it
/// needs, otherwise any; backward whole or in halves. Those with groups may deadlock.
Schedule random_schedule(Random& random, const RandomScheduleOptions& options = {});

/// Of every stage its own, some of them 0; `message` is 0 where `messages` is not set.
std::vector<Durations> random_durations(Random& random, int stages, bool messages);

/// Of all, of every stage or of every part its own, with all that can take time, and with
/// some links that are slow.
ScheduleTimes random_times(Random& random, const Schedule& schedule);

}  // namespace lockstep::test
